"""Presence: a file that a process keeps locked for as long as it lives. The kernel lets go when it dies."""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

from launcher.core.errors import StorageError
from launcher.ledger.memory_kills import KillCount, from_text, kill_count, killed_since, to_text

_SUFFIX = ".killed"
_NAME = re.compile(r"(\d{1,10})-([0-9a-f]{8})", re.ASCII)
_KILLED = re.compile(rf"{_NAME.pattern}{re.escape(_SUFFIX)}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class KilledLauncher:
    """A launcher that died while the kernel killed processes for lack of memory."""

    who: str
    pid: int


class Presence:
    """Tells this launcher from all others, and the living from the dead. They share `folder`."""

    def __init__(
        self,
        folder: Path,
        name: Callable[[], str] = socket.gethostname,
        *,
        count: Callable[[], KillCount | None] = kill_count,
        killed_since: Callable[[KillCount], bool] = killed_since,
    ) -> None:
        """`name`: of this computer, and of no other one that launchers share a ledger with. `count`,
        `killed_since`: whether the kernel kills processes for lack of memory.
        """
        self._folder, self._name = folder, name
        self._count, self._killed_since = count, killed_since
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
            self._lock.write(to_text(self._count()).encode())
            self._lock.flush()
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
        self._clean_up(path)
        return False

    def killed_for_memory(self) -> Sequence[KilledLauncher]:
        """List the launchers that died here while the kernel killed processes for lack of memory."""
        for path in self._folder.glob("*-*"):
            with suppress(OSError):
                if _NAME.fullmatch(path.name) and not is_locked(path):
                    self._clean_up(path)
        found = [_KILLED.fullmatch(path.name) for path in sorted(self._folder.glob(f"*{_SUFFIX}"))]
        return [
            KilledLauncher(who=f"{self.computer}:{one[1]}:{one[2]}", pid=int(one[1])) for one in found if one
        ]

    def forget(self, killed: KilledLauncher) -> None:
        """Remove what is known of that launcher: it was reported."""
        _, number, word = killed.who.rsplit(":", 2)
        path = self._path(number, word)
        path.with_name(f"{path.name}{_SUFFIX}").unlink(missing_ok=True)

    def _clean_up(self, path: Path) -> None:
        """Remove the file of a dead process; that of one killed for lack of memory is kept for the report."""
        with suppress(OSError):
            before = from_text(path.read_text(encoding="utf-8", errors="replace"))
            if before is not None and self._killed_since(before):
                path.replace(path.with_name(f"{path.name}{_SUFFIX}"))
                return
        path.unlink(missing_ok=True)

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
