"""Known hosts of one machine: a host key is believed when the machine's log names it, else on first use."""

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
    """A file in the format of OpenSSH's known_hosts; it holds for every launcher that drives the run."""

    def __init__(self, path: Path, *, vouch: Callable[[], Collection[str]] = tuple) -> None:
        """`vouch`: the machine's fingerprints, as `ssh-keygen -l` prints them, from where nobody changes it.

        Empty when none is named. Raises UnreachableError when one may be soon, ProviderError when that cannot
        be told. Asked only about a key that is not known yet.
        """
        self._path = path
        self._vouch = vouch
        self.identity = ""
        """How the machine that was reached last is known, in words."""

    @property
    def path(self) -> Path:
        """Return the file, for OpenSSH's own client."""
        return self._path

    def knows(self, address: Address) -> bool:
        """Tell whether this address has answered before."""
        return _name(address) in self._keys()

    def check(self, address: Address, key: PKey) -> None:
        """Check that the key is the machine's. Raises HostKeyError, UnreachableError, StorageError."""
        name, shown = _name(address), f"{key.get_name()} {key.get_base64()}"
        noted, pins, why = self._keys().get(name), self._pins(), ""
        # The log is asked only when it could say something new: a read of it takes seconds.
        if key.fingerprint not in pins and (pins or noted != shown):
            why = self._ask()
            pins = self._pins()
        if pins and key.fingerprint not in pins:
            text = f"shows the host key {key.fingerprint}, which the machine's log does not name"
            raise HostKeyError(text, hint=_HINT)
        if not pins and noted not in (None, shown):
            text = f"shows a host key that has changed; it is now {key.fingerprint}"
            raise HostKeyError(text, hint=_HINT)
        if noted is None:
            self._append(f"{name} {shown}\n")
        by = "is the one in its log" if pins else f"is trusted on first use: {why}"
        self.identity = f"the machine's SSH host key {by}"

    def _ask(self) -> str:
        """What the machine's log names is noted; why that is nothing."""
        try:
            self._append("".join(f"{_PIN}{named}\n" for named in self._vouch()))
        except UnreachableError:
            raise
        except ProviderError as error:
            return str(error)
        return "its log names none"

    def _pins(self) -> set[str]:
        """Fingerprints that the machine's log named."""
        return {line.removeprefix(_PIN) for line in self._lines() if line.startswith(_PIN)}

    def _keys(self) -> dict[str, str]:
        """Host keys by address; the first one noted holds."""
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
