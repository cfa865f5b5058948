"""Known hosts of one machine: a host key is believed when its fingerprint was given, else on first use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.errors import StorageError, UnreachableError

if TYPE_CHECKING:
    from paramiko import PKey

Address = tuple[str, int]


class HostKeyChangedError(UnreachableError):
    """The machine shows another host key than before. Nothing was sent to it."""


class KnownHosts:
    """A file in the format of OpenSSH's known_hosts; it holds for every launcher that drives the run."""

    def __init__(self, path: Path, *, fingerprint: str | None = None) -> None:
        """`fingerprint`: `SHA256:...`, as `ssh-keygen -l` prints it; then no other key is believed."""
        self._path = path
        self._fingerprint = fingerprint

    def knows(self, address: Address) -> bool:
        """Whether this address has answered before."""
        return _name(address) in self._lines()

    def check(self, address: Address, key: PKey) -> None:
        """Returns when the key is the machine's. Raises HostKeyChangedError, StorageError."""
        expected = self._lines().get(_name(address))
        shown = f"{key.get_name()} {key.get_base64()}"
        if self._fingerprint not in (None, key.fingerprint) or expected not in (None, shown):
            raise HostKeyChangedError(
                f"the host key of {_name(address)} has changed; it is now {key.fingerprint}",
                hint="somebody may be in between: destroy the machine and rent another one",
            )
        if expected is None:
            self._add(f"{_name(address)} {shown}\n")

    def _lines(self) -> dict[str, str]:
        """Host keys by address; the first one noted holds."""
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StorageError(f"cannot read {self._path}: {error.strerror}") from error
        pairs = [line.split(" ", 1) for line in text.splitlines() if " " in line]
        return {line[0]: line[1] for line in reversed(pairs)}

    def _add(self, line: str) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(line)
        except OSError as error:
            raise StorageError(f"cannot write {self._path}: {error.strerror}") from error


def _name(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}"
