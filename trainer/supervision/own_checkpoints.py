"""Own checkpoints: watches, takes and restores what the user's program saves, in a thread of the supervisor.

Standard library only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from trainer.contract.job import Job
from trainer.contract.stop_budget import CHECKPOINT_S
from trainer.supervision.checkpoint_restore import restore_newest, set_aside
from trainer.supervision.checkpoint_watcher import POLL_S, CheckpointWatcher
from trainer.supervision.rank_process import read_processes
from trainer.supervision.stop import StopRequest

LAST_LOOK_S = 300.0
"""Seconds in which the last checkpoint is taken after the end: the machine costs money meanwhile."""


@dataclass(kw_only=True)
class OwnCheckpoints:
    """The checkpoints of one supervised program; does nothing where the job does not name them."""

    box: Path
    say: Callable[[str], None]
    watcher: CheckpointWatcher | None
    _stopping: threading.Event = field(default_factory=threading.Event)
    _is_late: Callable[[], bool] = lambda: False
    """Return True once the last look has used up its time."""

    @classmethod
    def of(cls, box: Path, job: Job, say: Callable[[str], None]) -> OwnCheckpoints:
        """Return those of the job's program."""
        own = cls(box=box, say=say, watcher=None)
        if job.checkpoints is not None:
            own.watcher = CheckpointWatcher(
                box=box, run_id=job.run_id, settings=job.checkpoints, say=say, is_stopping=own._is_stopping
            )
        return own

    def restore(self) -> str:
        """Put the newest checkpoint back and return its path; empty on a fresh start. Raises DamagedError."""
        if self.watcher is None:
            return ""
        set_aside(self.watcher.incomplete, self.watcher.root, self.box, self.say)
        path = restore_newest(self.box, self.watcher.settings, self.say)
        self.watcher.begin()
        return path

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look for new checkpoints in a separate thread while all ranks of the program live."""
        if self.watcher is None:
            yield
            return
        self._stopping.clear()
        thread = threading.Thread(target=self._watch, args=(self.watcher,), name="checkpoints", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()

    def last_look(self, stop: StopRequest, *, ended_well: bool) -> None:
        """Take what the program saved last, in the time that a stop has left."""
        if self.watcher is None:
            return
        deadline = time.monotonic() + LAST_LOOK_S
        self._stopping.clear()
        self._is_late = lambda: time.monotonic() > deadline or stop.waited_s > CHECKPOINT_S
        self.watcher.last_look(ended_well=ended_well)
        self._is_late = lambda: False

    def _watch(self, watcher: CheckpointWatcher) -> None:
        while not self._stopping.wait(min(POLL_S, watcher.settings.every_s)):
            if any(process.exit_code for process in read_processes(self.box)):
                return  # what a killed rank left half written stands still too: the last look judges it
            try:
                watcher.poll(time.monotonic())
            except OSError as error:  # a full disk, a folder that is removed meanwhile
                self.say(f"checkpoints: {error}")

    def _is_stopping(self) -> bool:
        return self._stopping.is_set() or self._is_late()
