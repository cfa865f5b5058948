"""One batch on an emulated Vast of its own, with its plan's troubles on the way."""

import contextlib
import math
import signal
import tempfile
import threading
import time
from pathlib import Path

import psutil

from benchmarks.chaos import troubles
from benchmarks.chaos.batches.aftermath import BatchAftermath, BatchStory, look_back
from benchmarks.chaos.batches.files import BATCH_FILE, EDITED_FILE, NAME, write_files
from benchmarks.chaos.batches.plans import EDIT, STOP, WATCH, BatchPlan, batch_plan
from benchmarks.chaos.launches import kill_on_box
from tests.e2e.market import LOADING, machines
from tests.e2e.terminal import Launch, Terminal
from tests.emulators.vast import VastEmulator

_END_S = 1200.0
_RESUME_AFTER_S = 1.0
_RESUMES = 12
_LOOK_EACH_S = 4.0
_SUBMIT = ("batch", "submit", BATCH_FILE, "--provider", "vast", "-y")
_RESUME = ("batch", "resume", NAME)


def drive(seed: int, number: int, keep: Path | None = None) -> BatchAftermath:
    """Return what was left when nobody was at work any more. `keep`: a folder for its terminal's files."""
    plan = batch_plan(seed, number)
    vast = VastEmulator(machines(plan.machines), seed=1000 * seed + number, pace=LOADING)
    with tempfile.TemporaryDirectory(prefix="chaos-batch-") as folder, vast:
        terminal = Terminal(keep or Path(folder), **vast.variables)
        one = ChaosBatch(plan, terminal, vast)
        try:
            one.run()
            return look_back(plan, terminal, vast, one.story)
        finally:
            terminal.clean()


class ChaosBatch:
    """One batch of a plan, from its submit until nobody is at work."""

    def __init__(self, plan: BatchPlan, terminal: Terminal, vast: VastEmulator) -> None:
        self.story = BatchStory()
        self._plan, self._terminal, self._vast = plan, terminal, vast
        self._waiting = [trouble for trouble in plan.troubles if trouble.kind != troubles.FAULT]
        self._began = time.monotonic()
        self._rented = math.inf
        self._look: Launch | None = None
        self._looked_at = 0.0

    def run(self) -> None:
        """Submit it; and resume it as often as its launcher was killed, hung up or refused."""
        for trouble in self._plan.troubles:
            if trouble.kind == troubles.FAULT:
                self._vast.faults.add(trouble.name, after=trouble.after, seconds=trouble.seconds)
        write_files(self._plan, self._terminal.folder)
        words: tuple[str, ...] = _SUBMIT
        for _ in range(_RESUMES):
            goes_on = self._until_it_ends(self._terminal.start(*words))
            self._end_what_is_beside()
            if not goes_on and self._is_over():
                break
            time.sleep(_RESUME_AFTER_S)
            words = _RESUME if self._status() else _SUBMIT
        if self._look is not None:
            self._look.end()

    def _until_it_ends(self, launch: Launch) -> bool:
        """Return whether somebody ended the launcher. Every trouble comes at its time."""
        began, killed, left = time.monotonic(), False, False
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
                    left = left or (trouble.kind == troubles.LAUNCHER and trouble.name == troubles.HANG_UP)
            self._look_at_its_money()
            self._note_ends()
            time.sleep(0.05)
        code = launch.end(within_s=10).exit_code
        if not killed:
            self.story.codes.append(code)
        return killed or left

    def _due(self) -> list[troubles.Trouble]:
        now = time.monotonic()
        since = {True: self._began, False: self._rented}
        return [
            trouble
            for trouble in self._waiting
            if now - since[trouble.early] >= (0.0 if trouble.kind == troubles.BOX else trouble.at_s)
        ]

    def _strike(self, trouble: troubles.Trouble, launch: Launch) -> bool:
        """Return whether there was somebody to befall."""
        if trouble.kind == troubles.LAUNCHER:
            launch.kill() if trouble.name == troubles.KILL else launch.send(signal.SIGHUP)
        elif trouble.kind == troubles.PAUSE:
            launch.send(signal.SIGSTOP)
            threading.Timer(trouble.seconds, launch.send, (signal.SIGCONT,)).start()
        elif trouble.kind == troubles.CUT:
            self._vast.cut_network(trouble.seconds)
        elif trouble.kind == troubles.BOX:
            return kill_on_box(troubles.VICTIMS[trouble.name].words, trouble.at_s, self._vast)
        elif trouble.kind in (troubles.USER, troubles.COMPANY, EDIT):
            self.story.beside.append((trouble, self._terminal.start(*_words(trouble))))
        return True

    def _look_at_its_money(self) -> None:
        """At another terminal, as a user does who worries about it."""
        if self._look is not None and self._look.process.poll() is not None:
            done, self._look = self._look.end(), None
            if done.exit_code == 0:
                self.story.see(done.json())
        if self._look is None and time.monotonic() - self._looked_at > _LOOK_EACH_S:
            self._looked_at = time.monotonic()
            self._look = self._terminal.start("batch", "status", NAME, "--json")

    def _end_what_is_beside(self) -> None:
        for _, command in self.story.beside:
            if command.process.poll() is None:
                command.end(within_s=_END_S)
        self._note_ends()

    def _note_ends(self) -> None:
        """A command typed beside it may have driven the batch, and be the last that did."""
        for trouble, command in self.story.beside:
            code = command.process.poll()
            if code is not None and command not in self.story.noted:
                self.story.noted.append(command)
                if trouble.name not in (STOP, WATCH):
                    self.story.codes.append(code)

    def _is_over(self) -> bool:
        """Return whether nothing runs any more, and nothing waits but for a reason."""
        status = self._status()
        if not status or status["running"]:
            return False
        ended = status["reason"] or self.story.codes[-1:] == [3]
        return bool(ended or not status["waiting"])

    def _status(self) -> dict[str, object]:
        """Return the batch as it stands; empty before there is one."""
        done = self._terminal.type("batch", "status", NAME, "--json")
        return dict(done.json()) if done.exit_code == 0 else {}


def _words(trouble: troubles.Trouble) -> tuple[str, ...]:
    if trouble.kind == EDIT:
        return ("batch", "submit", EDITED_FILE, "--provider", "vast", "-y")
    return {STOP: ("batch", "stop", NAME), WATCH: ("batch", "watch", NAME)}.get(trouble.name, _RESUME)
