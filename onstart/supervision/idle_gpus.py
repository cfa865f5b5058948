"""Idle GPUs: notices GPUs that work less than half of the time for minutes, and what their ranks wait for.

`nvidia-smi` reports the load every few seconds. With each report the heartbeats, the CPU times and the states
of the run's processes are sampled; a period is judged by the samples of the last minutes. Standard library.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from vastrun.contract.outcome import IdleGpus, WaitsFor
from vastrun.onstart.supervision.processes import descendants, stat_fields
from vastrun.onstart.supervision.progress import RankProgress

WINDOW_S = 300.0
"""Seconds over which the load is averaged."""
MAX_LOAD = 0.5
"""GPUs below this mean load are idle."""
_QUERY = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")
_MIN_WAIT = 0.3
"""Share of the time from which data or a disk count as what the ranks wait for."""


class NvidiaSmi:
    """Loads from one `nvidia-smi` that runs as long as the ranks; without it, or on MIG, there are none."""

    def __init__(self, env: Mapping[str, str] = os.environ) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        visible = env.get("CUDA_VISIBLE_DEVICES")
        only = () if visible is None else ("-i", visible)
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                [*_QUERY, "-l", "5", *only],
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
            )
            assert self._process.stdout is not None
            os.set_blocking(self._process.stdout.fileno(), False)

    def read(self) -> list[float]:
        """Return the loads that were printed since the last call."""
        if self._process is None or self._process.stdout is None:
            return []
        printed = self._process.stdout.read(1 << 14) or b""  # None: nothing meanwhile
        *lines, self._rest = (self._rest + printed).split(b"\n")
        return [int(line) / 100 for line in lines if line.strip().isdigit() and int(line) <= 100]

    def close(self) -> None:
        """End `nvidia-smi`."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


@dataclass(frozen=True, kw_only=True)
class ProcessTimes:
    """CPU seconds of the run's processes so far."""

    main_threads_s: Mapping[int, float] = field(default_factory=dict)
    """CPU seconds of the main thread of each rank's program, by pid."""
    processes_s: Mapping[int, float] = field(default_factory=dict)
    """CPU seconds of each process, by pid."""
    in_disk_wait: bool = False
    """True when one of them waits for a disk right now."""


def process_times(pids: Iterable[int], proc: Path = Path("/proc")) -> ProcessTimes:
    """Read the CPU seconds of all descendants of this process. `pids`: the programs of the ranks."""
    main = {pid: stat for pid in pids if (stat := _stat(proc / str(pid) / "task" / str(pid)))}
    every = {pid: stat for pid in descendants(os.getpid()) if (stat := _stat(proc / str(pid)))}
    return ProcessTimes(
        main_threads_s={pid: seconds for pid, (_, seconds) in main.items()},
        processes_s={pid: seconds for pid, (_, seconds) in every.items()},
        in_disk_wait=any(state == b"D" for state, _ in (*main.values(), *every.values())),
    )


def _stat(folder: Path) -> tuple[bytes, float] | None:
    """Return the state's letter and the CPU seconds of a process or thread; None after its end."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        state, *values = stat_fields(folder)
        return state, (int(values[10]) + int(values[11])) / os.sysconf("SC_CLK_TCK")
    return None


class IdleGpuWatch:
    """Judges the GPUs of one launch; `look` about once a second."""

    def __init__(
        self,
        loads: NvidiaSmi,
        *,
        now: Callable[[], float] = time.monotonic,
        times: Callable[[Iterable[int]], ProcessTimes] = process_times,
        cores: int | None = None,
    ) -> None:
        self.loads, self._now, self._times = loads, now, times
        self._cores = cores or len(os.sched_getaffinity(0))
        self._samples: deque[tuple[float, tuple[float, ...]]] = deque()
        """The time of each sample, and its shares: load, data, disk, main thread, cores."""
        self._activities: list[str] = []
        self._last: tuple[float, ProcessTimes] | None = None
        self._idle_since: float | None = None
        self.current: IdleGpus | None = None
        """The current period; None: the GPUs are busy, or were not seen for long enough."""
        self.longest: IdleGpus | None = None

    def look(self, ranks: Sequence[RankProgress], pids: Iterable[int]) -> None:
        """Sample the ranks, and judge the last minutes when new loads were reported."""
        self._activities += [rank.activity for rank in ranks]
        loads = self.loads.read()
        if not loads:
            return
        now, times = self._now(), self._times(pids)
        before, self._last = self._last, (now, times)
        activities, self._activities = self._activities, []
        # A rank that reports its steps has not done the first one.
        if not ranks or any(rank.step == 0 and rank.activity for rank in ranks):
            self._restart()
        elif before is not None and activities:
            if now - before[0] > 60.0:
                self._restart()
            seconds = max(now - before[0], 1e-6)
            threads_s = _differences(before[1].main_threads_s, times.main_threads_s)
            processes_s = _differences(before[1].processes_s, times.processes_s)
            shares = (
                fmean(loads),
                activities.count("data") / len(activities),
                float(times.in_disk_wait),
                _share(fmean(threads_s) if threads_s else 0.0, seconds),
                _share(sum(processes_s), seconds * self._cores),
            )
            self._samples.append((now, shares))
            while len(self._samples) > 1 and self._samples[1][0] <= now - WINDOW_S:
                self._samples.popleft()
            self._judge(now, step=min(rank.step for rank in ranks), several=len(ranks) > 1)

    def _restart(self) -> None:
        self._samples.clear()
        self._idle_since = self.current = None

    def _judge(self, now: float, *, step: int, several: bool) -> None:
        began = self._samples[0][0]
        if now - began < WINDOW_S:
            return
        load, data, disk, thread, cores = map(fmean, zip(*(row for _, row in self._samples), strict=True))
        if load >= MAX_LOAD:
            self._idle_since = self.current = None
            return
        self._idle_since = began if self._idle_since is None else self._idle_since
        self.current = IdleGpus(
            load=round(load, 3),
            seconds=round(now - self._idle_since, 1),
            step=step,
            waits_for=_reason(data, disk, thread, cores, several=several),
            data=round(data, 3),
            disk=round(disk, 3),
            main_thread=round(thread, 3),
            cores=round(cores, 3),
        )
        if self.longest is None or self.current.seconds >= self.longest.seconds:
            self.longest = self.current


def _differences(before: Mapping[int, float], after: Mapping[int, float]) -> list[float]:
    return [seconds - before[pid] for pid, seconds in after.items() if pid in before]


def _share(part: float, whole: float) -> float:
    return max(0.0, min(1.0, part / whole))


def _reason(data: float, disk: float, main_thread: float, cores: float, *, several: bool) -> WaitsFor:
    """Return what limits the run. A disk comes first: who waits for data from it waits for the disk."""
    if disk >= _MIN_WAIT:
        return "disk"
    if data >= _MIN_WAIT:
        return "data"
    if main_thread >= 0.8 or cores >= 0.9:
        return "cpu"
    return "collectives" if several else "unknown"
