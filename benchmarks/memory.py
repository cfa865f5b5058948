"""Memory: the true peak of a training on a CPU, seen from outside, the same way for every program.

The kernel's own record of each process (VmHWM) never falls, so to look at it now and then misses only what
grows in a process's last moments. It belongs to an address space: a program that was started begins with
none, while its `ru_maxrss` begins with its parent's. A rank that is a copy of the fork server begins with the
pages that both share, as if they were its own. That is right: ranks of other programs load the same.
"""

import re
from contextlib import suppress
from pathlib import Path

import psutil

from tests.waiting import Watch

_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


class PeakWatch(Watch):
    """While it is open: the peak of the largest process that was started, by whomever, from this one."""

    mib = 0.0

    def look(self) -> None:
        peaks = [_peak_mib(process.pid) for process in psutil.Process().children(recursive=True)]
        self.mib = max(self.mib, *peaks, 0.0)


def _peak_mib(pid: int) -> float:
    """0 when it has ended."""
    with suppress(OSError):
        found = _PEAK.search(Path(f"/proc/{pid}/status").read_text())
        return int(found[1]) / 1024 if found else 0.0
    return 0.0
