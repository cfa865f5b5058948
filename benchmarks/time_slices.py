"""Trainings in time slices: each in turn runs for a second, and the others stand still.

What a shared computer gives changes from one minute to the next by more than what is to be told apart here,
and from one of its cores to the other. Who takes turns by the second has the same of it; and ranks change
cores with each turn, those of all trainings alike.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import psutil

from benchmarks.box import by_torchrun, environment, records_of, supervised
from vastrun.contract import layout

SLICE_S = 1.0
STDOUT = "stdout"
_LOOK_S = 0.05


class Training:
    """A training in its box, with all processes that it starts. It stands still between its slices."""

    def __init__(self, box: Path, command: Sequence[str], records: Path) -> None:
        """Start it. `records`: the file where it writes a line of JSON now and then, relative to the box."""
        self._box = box
        self._records = box / records
        self._errors = box / "stderr"
        self._job = json.loads((box / layout.JOB).read_text())
        self._slices: list[tuple[float, float]] = []
        self._stopped: list[psutil.Process] = []
        self._used_s: dict[int, float] = {}
        """Of a processor, by each of them, when it was last given cores."""
        self._began = time.time()
        with (box / STDOUT).open("wb") as out, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(command, env=environment(box), stdout=out, stderr=errors)

    def begin(self) -> None:
        """Let it run until its first step is done."""
        until = time.monotonic() + 120.0
        while not self.records():
            if self.has_ended or time.monotonic() > until:
                self._fail("began no step")
            time.sleep(_LOOK_S)
        self._stand_still()

    def run_for(self, seconds: float, *, turn: int) -> None:
        """Let it run for so long, or to its end."""
        if not self._job["gpus"]:
            self._change_cores(turn)
        self._go_on()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self._stand_still()

    def finish(self) -> None:
        """Let it run to its end."""
        self._go_on()
        if self._process.wait():
            self._fail("failed")
        self._slices.append((self._began, time.time()))

    def kill(self) -> None:
        """End all of it, wherever it is."""
        for process in self._processes():
            with suppress(psutil.Error):
                process.kill()

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def records(self) -> list[dict[str, float]]:
        """Return the lines of JSON so far."""
        return records_of(self._records.read_text()) if self._records.exists() else []

    def ran_s(self, first: float, last: float) -> float:
        """Return how long it ran between two moments, seconds since the epoch."""
        return sum(max(0.0, min(last, end) - max(first, begin)) for begin, end in self._slices)

    def _fail(self, how: str) -> NoReturn:
        sys.exit(f"{self._box.name} {how}:\n{self._errors.read_text()[-3000:]}")

    def _stand_still(self) -> None:
        self._stopped = self._processes()
        for process in self._stopped:
            with suppress(psutil.Error):
                process.suspend()
        self._slices.append((self._began, time.time()))

    def _go_on(self) -> None:
        # Nothing is looked up from here on: it would count as time in which the training ran.
        self._began = time.time()
        for process in reversed(self._stopped):
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)

    def _change_cores(self, turn: int) -> None:
        """Give each rank's main thread a core of its own. Ranks are what worked most since the last turn."""
        cores, used_s = sorted(os.sched_getaffinity(0)), {one.pid: _used_s(one) for one in self._stopped}
        busiest = sorted(used_s, key=lambda pid: used_s[pid] - self._used_s.get(pid, 0.0))
        for number, pid in enumerate(busiest[-self._job["ranks"] :]):
            with suppress(OSError):
                os.sched_setaffinity(pid, {cores[(number + turn) % len(cores)]})
        self._used_s = used_s

    def _processes(self) -> list[psutil.Process]:
        """Return all of them, parents before their children."""
        with suppress(psutil.Error):
            first = psutil.Process(self._process.pid)
            return [first, *first.children(recursive=True)]
        return []


def with_vastrun(box: Path) -> Training:
    """Start one under the supervisor, with all that is on by default."""
    return Training(box, supervised(), layout.METRICS)


def by_hand(box: Path, program: str = "benchmarks.bare") -> Training:
    """Start one of another loop under torchrun."""
    return Training(box, by_torchrun(box, program), Path(STDOUT))


def run_in_slices(starts: Sequence[Callable[[], Training]]) -> list[Training]:
    """Start trainings one after the other, then run them all to their ends. Return them.

    Which one is first in a round is last in the next.
    """
    trainings: list[Training] = []
    try:
        for start in starts:
            trainings.append(start())
            trainings[-1].begin()
        order, turn = list(trainings), 0
        while not any(training.has_ended for training in order):
            for training in order:
                training.run_for(SLICE_S, turn=turn)
            order, turn = order[::-1], turn + 1
        for training in order:
            training.finish()
    finally:
        for training in trainings:
            training.kill()
    return trainings


def _used_s(process: psutil.Process) -> float:
    with suppress(psutil.Error):
        times = process.cpu_times()
        return float(times.user + times.system)
    return 0.0
