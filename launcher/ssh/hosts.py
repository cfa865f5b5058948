"""Known hosts of one machine: its host key is pinned by the machine's log, or else trusted on first use."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from vastrun.launcher.core.errors import HostKeyError, ProviderError, StorageError, UnreachableError

if TYPE_CHECKING:
    from paramiko import PKey

Address = tuple[str, int]

_PIN = "# pinned "
_HINT = "the connection may be intercepted: destroy the machine and rent another one"


class KnownHosts:
    """A file in OpenSSH's known_hosts format, shared by all launchers that drive the run."""

    def __init__(self, path: Path, *, read_fingerprints: Callable[[], Collection[str]] = tuple) -> None:
        """`read_fingerprints`: returns the fingerprints in the machine's log, in the form of `ssh-keygen -l`.

        It returns none when the log names none, raises UnreachableError when the log may name one soon, and
        ProviderError when the log cannot be read. It is called only for keys that are not known yet.
        """
        self._path = path
        self._read_fingerprints = read_fingerprints
        self.identity = ""
        """Method by which the last machine was identified, for display."""

    @property
    def path(self) -> Path:
        """The file, for OpenSSH's client."""
        return self._path

    def knows(self, address: Address) -> bool:
        """Return whether this address answered before."""
        return _name(address) in self._keys()

    def check(self, address: Address, key: PKey) -> None:
        """Check that the key is the machine's. Raises HostKeyError, UnreachableError, StorageError."""
        name, key_line = _name(address), f"{key.get_name()} {key.get_base64()}"
        known_key, pins, why = self._keys().get(name), self._pins(), ""
        # The log is read only when it could name a new key: reading it takes seconds.
        if key.fingerprint not in pins and (pins or known_key != key_line):
            why = self._pin_from_log()
            pins = self._pins()
        if pins and key.fingerprint not in pins:
            text = f"shows the host key {key.fingerprint}, which the machine's log does not name"
            raise HostKeyError(text, hint=_HINT)
        if not pins and known_key not in (None, key_line):
            text = f"shows a host key that has changed; it is now {key.fingerprint}"
            raise HostKeyError(text, hint=_HINT)
        if known_key is None:
            self._append(f"{name} {key_line}\n")
        by = "is the one in its log" if pins else f"is trusted on first use: {why}"
        self.identity = f"the machine's SSH host key {by}"

    def _pin_from_log(self) -> str:
        """Pin the fingerprints in the machine's log; return the reason if there is none."""
        try:
            self._append("".join(f"{_PIN}{named}\n" for named in self._read_fingerprints()))
        except UnreachableError:
            raise
        except ProviderError as error:
            return str(error)
        return "its log does not name one"

    def _pins(self) -> set[str]:
        """Return the fingerprints that were pinned."""
        return {line.removeprefix(_PIN) for line in self._lines() if line.startswith(_PIN)}

    def _keys(self) -> dict[str, str]:
        """Return host keys by address; the first line of an address counts, as in OpenSSH."""
        pairs = [line.split(" ", 1) for line in self._lines() if " " in line and not line.startswith("#")]
        return {pair[0]: pair[1] for pair in reversed(pairs)}

    def _lines(self) -> list[str]:
        try:
            return self._path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageError(f"cannot read {self._path}: {error.strerror}") from error

    def _append(self, lines: str) -> None:
        if not lines:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(lines)
        except OSError as error:
            raise StorageError(f"cannot write {self._path}: {error.strerror}") from error


def _name(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}"
