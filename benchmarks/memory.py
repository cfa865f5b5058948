"""Memory: the true peak of a training on a CPU, seen from outside, the same way for every program.

The kernel's own record of each process (VmHWM) never falls, so to look at it now and then misses only what
grows in a process's last moments. It belongs to an address space: a program that was started begins with
none, while its `ru_maxrss` begins with its parent's. A rank that is a copy of the fork server begins with the
pages that both share, as if they were its own. That is right: ranks of other programs load the same.
"""

import re
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


class PeakWatch:
    """While it is open: the peak of the largest process that was started, by whomever, from this one."""

    def __init__(self) -> None:
        self.mib = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="peak")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _look_on(self) -> None:
        this = psutil.Process()
        while not self._over.wait(0.05):
            peaks = [_peak_mib(process.pid) for process in this.children(recursive=True)]
            self.mib = max(self.mib, *peaks, 0.0)


def _peak_mib(pid: int) -> float:
    """0 when it has ended."""
    with suppress(OSError):
        found = _PEAK.search(Path(f"/proc/{pid}/status").read_text())
        return int(found[1]) / 1024 if found else 0.0
    return 0.0
