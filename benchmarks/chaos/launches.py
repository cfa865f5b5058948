"""One launch on an emulated Vast of its own, with its plan's troubles on the way."""

import contextlib
import math
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from benchmarks.chaos import troubles
from benchmarks.chaos.aftermath import Aftermath, Story, look_back
from benchmarks.chaos.docker import befall
from benchmarks.chaos.job import write_job
from benchmarks.chaos.plans import Plan
from benchmarks.chaos.wallclock import WallClock
from tests.e2e.market import LOADING, machines
from tests.e2e.terminal import Launch, Terminal
from tests.emulators.clock import Clock
from tests.emulators.vast import VastEmulator
from vastrun.launcher.cost.reconciliation import SETTLEMENT_S
from vastrun.launcher.decisions import policy

_END_S = 900.0
_RESUME_AFTER_S = 1.0
_RESUMES = 4
_BILL_LAG_S = 120.0
"""The bill's last minute is there so long after it is over."""
_ALWAYS = 1_000_000
_STEP_S = 300.0
_AT_ONCE = (troubles.FAULT, troubles.DECEIT, troubles.MONEY)
"""Kinds that are there from the start."""


def launch(plan: Plan, image: str | None = None) -> Aftermath:
    """What was left when nobody was at work any more."""
    time_of_day = Clock(began=time.time() + plan.hour_s)
    vast = VastEmulator(
        machines(6), seed=plan.number, pace=LOADING, image=image, clock=time_of_day, tails=True
    )
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder, vast:
        clock = WallClock(Path(folder) / "wallclock", plan.hour_s)
        clock.set_by(plan.wrong_by_s)
        terminal = Terminal(Path(folder), **vast.variables, **clock.variables)
        one = ChaosLaunch(plan, terminal, vast, clock)
        try:
            one.run()
            return look_back(plan, terminal, vast, one.story, one.wait_until_settled)
        finally:
            terminal.clean()


class ChaosLaunch:
    """One run of a plan, from the launch until nobody is at work."""

    def __init__(self, plan: Plan, terminal: Terminal, vast: VastEmulator, clock: WallClock) -> None:
        self.story = Story()
        self._plan = plan
        self._terminal = terminal
        self._vast = vast
        self._clock = clock
        self._waiting = [trouble for trouble in plan.troubles if trouble.kind not in _AT_ONCE]
        self._began = time.monotonic()
        self._rented = math.inf

    def run(self) -> None:
        """Launches; and resumes, where a launcher was killed or left."""
        for trouble in self._plan.troubles:
            if trouble.kind == troubles.FAULT:
                times = _ALWAYS if trouble.name in (*troubles.LASTING, troubles.NEVER_STARTS) else 1
                self._vast.faults.add(trouble.name, after=trouble.after, seconds=trouble.seconds, times=times)
            if trouble.kind in (troubles.DECEIT, troubles.MONEY):
                self.story.struck.add(trouble)
        job = str(write_job(self._plan, self._terminal.folder))
        launch = self._terminal.start("launch", job, "--provider", "vast", "-y")
        for _ in range(_RESUMES):
            if not self._until_it_ends(launch):
                break
            if self._plan.never_starts:
                self._wait_for_schedule()
                break
            if self._plan.abandoned:
                _wait(lambda: len(self._vast.instances) == 0, within_s=self._plan.life_s + 60)
                break
            time.sleep(_RESUME_AFTER_S)
            # A hang-up leaves a driver in the background, beside which nobody resumes.
            launch = self._terminal.start("wait" if self._was_hung_up else "resume", "last")
        for _, command in self.story.beside:
            command.end(within_s=_END_S)

    def wait_until_settled(self) -> None:
        """It is so much later that the whole bill is there."""
        self._vast.advance(SETTLEMENT_S + _BILL_LAG_S)
        self._clock.advance(SETTLEMENT_S + _BILL_LAG_S)

    def _wait_for_schedule(self) -> None:
        """Two hours after its last moment, a machine that nothing of ours can end is gone."""
        last_s = policy.MAX_BOOT_S + self._plan.life_s + policy.LIMIT_SLACK_S + policy.LATE_GRACE_S
        for _ in range(round((last_s + 2 * 3600.0) / _STEP_S)):
            if len(self._vast.instances):
                self._vast.advance(_STEP_S)
                self.story.waited_s += _STEP_S
        self.story.ended_too_early = self.story.waited_s < last_s

    def _until_it_ends(self, launch: Launch) -> bool:
        """Whether the launcher left its run without an end. Every trouble comes at its time."""
        began, killed = time.monotonic(), False
        process = psutil.Process(launch.process.pid)
        while launch.process.poll() is None and time.monotonic() - began < _END_S:
            with contextlib.suppress(psutil.Error):
                self.story.launcher_mb = max(self.story.launcher_mb, process.memory_info().rss / 1e6)
            self._rented = min(self._rented, time.monotonic() if self._vast.billing.meters else math.inf)
            for trouble in self._due():
                if self._strike(trouble, launch):
                    self._waiting.remove(trouble)
                    self.story.struck.add(trouble)
                    killed = killed or (trouble.kind == troubles.LAUNCHER and trouble.name == troubles.KILL)
            time.sleep(0.05)
        code = launch.end(within_s=10).exit_code
        if not killed and code != -signal.SIGHUP:  # a hang-up after the end of the run ends the process
            self.story.codes.append(code)
        left = any(trouble.kind == troubles.LAUNCHER for trouble in self.story.struck)
        return killed or (left and self._is_open())

    @property
    def _was_hung_up(self) -> bool:
        return any(trouble.name == troubles.HANG_UP for trouble in self.story.struck)

    def _due(self) -> list[troubles.Trouble]:
        now = time.monotonic()
        since = {True: self._began, False: self._rented}
        # A launcher that is killed in the moment between order and schedule leaves none: docs/limits.md.
        if self._plan.never_starts and not self._vast.schedules.jobs:
            return []
        return [trouble for trouble in self._waiting if now - since[trouble.early] >= trouble.at_s]

    def _is_open(self) -> bool:
        runs = self._terminal.type("status", "--json").json()["runs"]
        return any(run["verdict"] is None for run in runs)

    def _strike(self, trouble: troubles.Trouble, launch: Launch) -> bool:
        """Whether there was somebody to befall."""
        if trouble.kind == troubles.LAUNCHER:
            launch.kill() if trouble.name == troubles.KILL else launch.send(signal.SIGHUP)
        elif trouble.kind == troubles.PAUSE:
            launch.send(signal.SIGSTOP)
            threading.Timer(trouble.seconds, launch.send, (signal.SIGCONT,)).start()
        elif trouble.kind == troubles.CLOCK:
            self._clock.set_by(trouble.seconds)
        elif trouble.kind == troubles.CUT:
            self._vast.cut_network(trouble.seconds)
        elif trouble.kind in (troubles.USER, troubles.COMPANY):
            self.story.beside.append((trouble, self._type(trouble)))
        elif trouble.kind == troubles.BOX:
            return kill_on_box(troubles.VICTIMS[trouble.name].words, trouble.at_s, self._vast)
        elif trouble.kind == troubles.DOCKER:
            return befall(trouble, self._vast)
        return True

    def _type(self, trouble: troubles.Trouble) -> Launch:
        words, _ = troubles.COMMANDS[trouble.name]
        if trouble.name != "another key":
            return self._terminal.start(*words)
        with self._vast.lock:
            key = self._vast.account.add_stranger()
        return self._terminal.start(*words, VAST_API_KEY=key)


def kill_on_box(words: str, after_s: float, vast: VastEmulator) -> bool:
    """Whether a box had a process that is older than that, with these words in its command, to be killed."""
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
