"""Presence of launchers: which are alive, by locked files, and which the kernel killed (out of memory)."""

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

from vastrun.contract.records import RecordError, as_json, read_json
from vastrun.launcher.core.errors import StorageError
from vastrun.launcher.ledger.database import state_folder_hint

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_SUFFIX = ".killed"
_NAME = re.compile(r"(\d{1,10})-([0-9a-f]{8})", re.ASCII)
_KILLED = re.compile(rf"{_NAME.pattern}{re.escape(_SUFFIX)}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class KillCount:
    """Number of processes that the kernel's OOM killer ended since a boot."""

    boot: str
    computer: int
    """Count of the whole computer."""
    cgroup: str
    """Path of the process's control group below the root; empty when unknown."""
    in_cgroup: int
    """Count of that control group; -1 when unknown."""


def read_kill_count(proc: Path = PROC, cgroups: Path = CGROUPS) -> KillCount | None:
    """Return the count for this process; None when the system does not provide it."""
    cgroup = _match(r"^0::/(.+)$", _text(proc / "self/cgroup"))
    return _read_count(proc, cgroups, cgroup)


def killed_since(before: KillCount, proc: Path = PROC, cgroups: Path = CGROUPS) -> bool:
    """Return whether a process was killed since: in the same control group if known, else on the computer."""
    now = _read_count(proc, cgroups, before.cgroup)
    # The kernel counts from zero after each boot: an older count cannot be compared.
    if now is None or now.boot != before.boot:
        return False
    # A count of the whole computer includes kills in other containers, so the group's count is preferred.
    if before.cgroup and now.in_cgroup >= before.in_cgroup >= 0:
        return now.in_cgroup > before.in_cgroup
    return now.computer > before.computer


def _read_count(proc: Path, cgroups: Path, cgroup: str) -> KillCount | None:
    boot = _text(proc / "sys/kernel/random/boot_id").strip()
    computer = _match(r"^oom_kill (\d+)$", _text(proc / "vmstat"))
    if not boot or not computer:
        return None
    in_cgroup = _match(r"^oom_kill (\d+)$", _text(cgroups / cgroup / "memory.events")) if cgroup else ""
    return KillCount(boot=boot, computer=int(computer), cgroup=cgroup, in_cgroup=int(in_cgroup or -1))


def _match(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE | re.ASCII)
    return found[1] if found else ""


def _text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(1 << 16)
    except OSError:
        return ""


class Presence:
    """Registry of the launchers on this computer: a locked file in `folder` for each."""

    def __init__(
        self,
        folder: Path,
        name: Callable[[], str] = socket.gethostname,
        *,
        count: Callable[[], KillCount | None] = read_kill_count,
        killed_since: Callable[[KillCount], bool] = killed_since,
    ) -> None:
        """`name`: returns this computer's name, unique among the computers that share the ledger. `count`,
        `killed_since`: read the OOM killer's counters.
        """
        self._folder, self._name = folder, name
        self._read_count, self._killed_since = count, killed_since
        self._lock: IO[bytes] | None = None

    @cached_property
    def computer(self) -> str:
        """Name of this computer."""
        return self._name()

    @cached_property
    def who(self) -> str:
        """Unique name of this process: computer, pid and a random word, since pids are reused.

        Raises StorageError.
        """
        number, word = os.getpid(), secrets.token_hex(4)
        path = self._path(str(number), word)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = path.open("xb")
            # The kernel releases the lock however the process ends; a pid may be reused.
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            count = self._read_count()
            self._lock.write(b"" if count is None else as_json(count).encode())
            self._lock.flush()
        except OSError as error:
            hint = state_folder_hint(path.parent.parent)
            raise StorageError(f"cannot write {path}: {error.strerror or error}", hint=hint) from error
        # Only a clean exit deletes the file: one that stays without its lock marks a killed launcher.
        atexit.register(path.unlink, missing_ok=True)
        return f"{self.computer}:{number}:{word}"

    def is_alive(self, who: str) -> bool:
        """Return whether that process may be alive: False only when it ran on this computer and is dead."""
        return self.is_alive_here(who) is not False

    def is_alive_here(self, who: str) -> bool | None:
        """Return whether that process is alive; None when it is another computer's."""
        computer, number, word = who.rsplit(":", 2)
        path = self._path(number, word)
        if computer != self.computer:
            return None
        if is_locked(path):
            return True
        self._clean_up(path)
        return False

    def killed_for_memory(self) -> Sequence[str]:
        """List the names of the launchers that died on this computer while its OOM killer was active."""
        for path in self._folder.glob("*-*"):
            with suppress(OSError):
                if _NAME.fullmatch(path.name) and not is_locked(path):
                    self._clean_up(path)
        found = [_KILLED.fullmatch(path.name) for path in sorted(self._folder.glob(f"*{_SUFFIX}"))]
        return [f"{self.computer}:{one[1]}:{one[2]}" for one in found if one]

    def forget(self, who: str) -> None:
        """Delete the record of a killed launcher after its report."""
        _, number, word = who.rsplit(":", 2)
        path = self._path(number, word)
        path.with_name(f"{path.name}{_SUFFIX}").unlink(missing_ok=True)

    def _clean_up(self, path: Path) -> None:
        """Delete the file of a dead process; keep it under another name if the OOM killer was active."""
        with suppress(OSError, RecordError):
            if self._killed_since(read_json(KillCount, path.read_text(encoding="utf-8", errors="replace"))):
                path.replace(path.with_name(f"{path.name}{_SUFFIX}"))
                return
        path.unlink(missing_ok=True)

    def _path(self, number: str, word: str) -> Path:
        return self._folder / f"{number}-{word}"


def is_locked(path: Path) -> bool:
    """Return whether a process holds the file's lock; False for a missing file. Raises OSError."""
    try:
        with path.open("rb") as file:
            # Shared: two launchers that look at once must not take each other for the owner.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False
