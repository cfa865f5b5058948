"""Presence: a file that a process keeps locked for as long as it lives. The kernel lets go when it dies."""

from __future__ import annotations

import atexit
import fcntl
import os
import secrets
import socket
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import IO

from launcher.core.errors import StorageError


class Presence:
    """Tells this launcher from all others, and the living from the dead. They share `folder`."""

    def __init__(self, folder: Path, name: Callable[[], str] = socket.gethostname) -> None:
        """`name`: of this computer, and of no other one that launchers share a ledger with."""
        self._folder, self._name = folder, name
        self._lock: IO[bytes] | None = None

    @cached_property
    def computer(self) -> str:
        """The name of this computer."""
        return self._name()

    @cached_property
    def who(self) -> str:
        """The name of this process: computer, number and a word that no other process ever had.

        Raises StorageError.
        """
        number, word = os.getpid(), secrets.token_hex(4)
        path = self._path(str(number), word)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = path.open("xb")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        except OSError as error:
            hint = "XDG_STATE_HOME=/somewhere/writable vastrun ..."
            raise StorageError(f"cannot write {path}: {error.strerror or error}", hint=hint) from error
        atexit.register(path.unlink, missing_ok=True)
        return f"{self.computer}:{number}:{word}"

    def is_alive(self, who: str) -> bool:
        """Return False only when that process ran on this computer and is dead."""
        return self.is_alive_here(who) is not False

    def is_alive_here(self, who: str) -> bool | None:
        """Return whether that process lives; None when it is another computer's."""
        computer, number, word = who.rsplit(":", 2)
        path = self._path(number, word)
        if computer != self.computer:
            return None
        if is_locked(path):
            return True
        path.unlink(missing_ok=True)
        return False

    def _path(self, number: str, word: str) -> Path:
        return self._folder / f"{number}-{word}"


def is_locked(path: Path) -> bool:
    """Return whether a process holds the file's lock. False where there is no such file. Raises OSError."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False
