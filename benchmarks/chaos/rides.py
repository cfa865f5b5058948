"""A ride: one launch on an emulated Vast of its own, with its plan's troubles on the way."""

from __future__ import annotations

import contextlib
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from benchmarks.chaos.aftermath import Aftermath, look_back
from benchmarks.chaos.docker import befall
from benchmarks.chaos.job import write_job
from benchmarks.chaos.plans import BOX, CLOCK, CUT, DECEIT, DOCKER, FAULT, LAUNCHER, VICTIMS, Plan, Trouble
from benchmarks.chaos.wallclock import WallClock
from tests.e2e.market import LOADING, machines
from tests.e2e.terminal import Launch, Terminal
from tests.emulators.vast import VastEmulator

_END_S = 360.0
_RESUME_AFTER_S = 1.0


def ride(plan: Plan, image: str | None = None) -> Aftermath:
    """What was left when nobody was at work any more."""
    vast = VastEmulator(machines(6), seed=plan.number, pace=LOADING, image=image)
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder, vast:
        clock = WallClock(Path(folder) / "wallclock")
        terminal = Terminal(Path(folder), **vast.variables, **clock.variables)
        try:
            codes, launcher_mb = _ride(plan, terminal, vast, clock)
            return look_back(plan, terminal, vast, codes, launcher_mb)
        finally:
            terminal.clean()


def _ride(plan: Plan, terminal: Terminal, vast: VastEmulator, clock: WallClock) -> tuple[list[int], float]:
    """Exit codes of the launchers that were not killed, and what memory one took at most, in MB."""
    for trouble in plan.troubles:
        if trouble.kind == FAULT:
            vast.faults.add(trouble.name, after=trouble.after, seconds=trouble.seconds)
    launch = terminal.start("launch", str(write_job(plan, terminal.folder)), "--provider", "vast", "-y")
    waiting = [trouble for trouble in plan.troubles if trouble.kind not in (FAULT, DECEIT)]
    killed, most_mb = _until_it_ends(waiting, launch, vast, clock)
    if not killed:
        return [launch.end(within_s=10).exit_code], most_mb
    if plan.resumes:
        time.sleep(_RESUME_AFTER_S)
        resume = terminal.start("resume", "last")
        _, then_mb = _until_it_ends([], resume, vast, clock)
        return [resume.end(within_s=10).exit_code], max(most_mb, then_mb)
    _wait(lambda: len(vast.instances) == 0, within_s=plan.life_s + 60)
    return [], most_mb


def _until_it_ends(
    waiting: list[Trouble], launch: Launch, vast: VastEmulator, clock: WallClock
) -> tuple[bool, float]:
    """Whether the launcher was killed, and its memory in MB at most. Every trouble comes at its time."""
    began, rented, most_mb = time.monotonic(), math.inf, 0.0
    process = psutil.Process(launch.process.pid)
    while launch.process.poll() is None and time.monotonic() - began < _END_S:
        now = time.monotonic()
        with contextlib.suppress(psutil.Error):
            most_mb = max(most_mb, process.memory_info().rss / 1e6)
        rented = min(rented, now if vast.billing.meters else math.inf)
        for trouble in list(waiting):
            since = began if trouble.early else rented
            if now - since >= trouble.at_s and _strike(trouble, launch, vast, clock):
                waiting.remove(trouble)
                if trouble.kind == LAUNCHER:
                    return True, most_mb
        time.sleep(0.05)
    return False, most_mb


def _strike(trouble: Trouble, launch: Launch, vast: VastEmulator, clock: WallClock) -> bool:
    """Whether there was somebody to befall."""
    if trouble.kind == LAUNCHER:
        launch.kill()
    elif trouble.kind == CLOCK:
        clock.set_by(trouble.seconds)
    elif trouble.kind == CUT:
        vast.cut_network(trouble.seconds)
    elif trouble.kind == BOX:
        return _kill_on_box(VICTIMS[trouble.name].words, trouble.at_s, vast)
    elif trouble.kind == DOCKER:
        return befall(trouble, vast)
    return True


def _kill_on_box(words: str, after_s: float, vast: VastEmulator) -> bool:
    boxes = {str(instance.id) for instance in vast.instances}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if (
                process.environ().get("VASTRUN_INSTANCE") in boxes
                and words in " ".join(process.cmdline())
                and time.time() - process.create_time() > after_s
            ):
                process.kill()
                return True
    return False


def _wait(look: Callable[[], bool], *, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not look() and time.monotonic() < deadline:
        time.sleep(0.1)
