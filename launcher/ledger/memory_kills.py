"""Memory kills: whether the kernel killed a process for lack of memory since a launcher began, by `/proc`."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_MAX_CHARACTERS = 1 << 16


@dataclass(frozen=True, kw_only=True)
class KillCount:
    """The number of processes that the kernel killed for lack of memory, since a boot."""

    boot: str
    computer: int
    """On the whole computer."""
    cgroup: str
    """Control group of the process, below their root; empty: that is not known."""
    in_cgroup: int
    """The same count of that group."""


def kill_count(proc: Path = PROC, cgroups: Path = CGROUPS) -> KillCount | None:
    """Return the count for this process; None where the system does not say."""
    cgroup = _match(r"^0::/(.+)$", _text(proc / "self/cgroup"))
    return _count(proc, cgroups, cgroup)


def killed_since(before: KillCount, proc: Path = PROC, cgroups: Path = CGROUPS) -> bool:
    """Return whether a process was killed since, in the same control group where that is known."""
    now = _count(proc, cgroups, before.cgroup)
    if now is None or now.boot != before.boot:
        return False
    if before.cgroup and now.in_cgroup >= before.in_cgroup >= 0:
        return now.in_cgroup > before.in_cgroup
    return now.computer > before.computer


def to_text(count: KillCount | None) -> str:
    """Return the count as a line of a file."""
    return "" if count is None else json.dumps(asdict(count))


def from_text(text: str) -> KillCount | None:
    """Return the count that a file holds; None where it holds none."""
    with suppress(ValueError, TypeError, RecursionError):
        count = KillCount(**json.loads(text))
        if isinstance(count.cgroup, str) and all(
            isinstance(n, int) for n in (count.computer, count.in_cgroup)
        ):
            return count
    return None


def _count(proc: Path, cgroups: Path, cgroup: str) -> KillCount | None:
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
            return file.read(_MAX_CHARACTERS)
    except OSError:
        return ""
