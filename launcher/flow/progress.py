"""Progress: how far a training is, by the status of its box, and when to show it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from vastrun.launcher.core import BoxStatus, Phase, Progress, Run
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.flow.pace import Pace
from vastrun.launcher.ports import Screen

TRAIN = "50-train"
PREPARING: Mapping[str, str] = {
    "": "starting the program",
    "start": "preparing the ranks",
    "data": "loading data",
    "compile": "compiling the model",
}
"""Text for each activity of a rank before its first step, in order; empty: no heartbeat yet."""
_ACTIVITIES: Mapping[str, str] = {
    "eval": "evaluating",
    "checkpoint": "saving a checkpoint",
    "done": "finishing",
}


def progress_of(box_status: BoxStatus, spec: JobSpec, pace: Pace, now: float) -> Progress:
    """Return the progress that is shown to the user."""
    planned = planned_steps(spec)
    return Progress(
        activity=activity_of(box_status, spec),
        step=box_status.step if reports_step(box_status) else None,
        steps=last_step(spec, box_status) or None,
        loss=box_status.loss,
        left_s=pace.left_s(planned, now) if planned < math.inf else None,
    )


def planned_steps(spec: JobSpec) -> float:
    """Return the last step in the job; infinity where it has none. The box's own number is not trusted."""
    if spec.train is not None:
        return spec.train.steps
    return spec.success.steps if spec.success and spec.success.steps else math.inf


def last_step(spec: JobSpec, box_status: BoxStatus) -> int:
    """Return the last step in the job, else the box's number; 0: unknown."""
    planned = planned_steps(spec)
    return int(planned) if planned < math.inf else box_status.steps


def activity_of(box_status: BoxStatus, spec: JobSpec) -> str:
    """Describe what is being done besides steps; empty: steps are done, or nothing runs."""
    if box_status.box != "running":
        return ""
    if box_status.onstart_step != TRAIN:
        return box_status.onstart_step
    if spec.hold is not None:
        return "held"
    if len(box_status.ranks) < spec.ranks_per_node:
        return "importing torch, starting the ranks"
    activities = {rank.activity for rank in box_status.ranks}
    if activities == {""} and not needs_heartbeats(spec):
        return "running"
    for activity, words in PREPARING.items():
        # Every step reads data; only before the first one does that take long enough to be reported.
        if activity in activities and (activity != "data" or box_status.step == 0):
            return words
    return next((words for activity, words in _ACTIVITIES.items() if activity in activities), "")


def reports_step(box_status: BoxStatus) -> bool:
    """Return whether any rank reports its step."""
    return box_status.step > 0 or any(rank.activity for rank in box_status.ranks)


def needs_heartbeats(spec: JobSpec) -> bool:
    """Return whether success depends on the steps that ranks report."""
    return spec.train is not None or (spec.success is not None and spec.success.steps is not None)


MIN_ALIVE_S = 5.0
"""Seconds for which its ranks must live before a program that reports no steps counts as started."""


@dataclass
class TrainingStartDetector:
    """Detects that a training has started, from successive box statuses."""

    has_started: bool = False
    _first_step: int | None = None
    """The step from which the training starts."""
    _started_at: float | None = None

    def observe(self, box_status: BoxStatus, spec: JobSpec, now: float) -> None:
        """Record a status of the box, and whether it shows that the training has started.

        A program that needs no heartbeats has started, too, when its ranks have lived for MIN_ALIVE_S.
        """
        if not self.has_started and box_status.box == "running":
            if spec.hold is not None:
                self.has_started = box_status.onstart_step == TRAIN
                return
            self.has_started = self._steps(box_status) if spec.train else self._runs(box_status, spec, now)

    def _steps(self, box_status: BoxStatus) -> bool:
        if not box_status.ranks or any(rank.activity in ("", "start") for rank in box_status.ranks):
            return False
        if self._first_step is None:
            self._first_step = box_status.step
        return box_status.step > self._first_step

    def _runs(self, box_status: BoxStatus, spec: JobSpec, now: float) -> bool:
        if any(rank.activity not in PREPARING for rank in box_status.ranks):
            return True
        silent = all(rank.activity == "" for rank in box_status.ranks)
        if needs_heartbeats(spec) or not silent or len(box_status.ranks) < spec.ranks_per_node:
            return False
        self._started_at = now if self._started_at is None else self._started_at
        return now - self._started_at >= MIN_ALIVE_S


_STEP_LINE = re.compile(r"^\d+\.\d+ (?P<step>\d\d-\S+) .*\n", re.MULTILINE)
"""Line that an onstart step wrote (docs/box.md)."""


def split_at(text: str, step: str) -> tuple[str, str]:
    """Split text of the log after the last line of the steps before `step` ("40-data").

    Steps run in the order of their names. One that was started early may write among them.
    """
    ends = [line.end() for line in _STEP_LINE.finditer(text) if line["step"] < step]
    end = ends[-1] if ends else 0
    return text[:end], text[end:]


DISPLAY_INTERVAL_S = 1.0
"""Seconds after which the same progress is shown again, with its new time and cost."""


class ProgressDisplay:
    """The progress of one run, as the screen shows it."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._known: tuple[Phase | None, Progress] = (None, Progress())
        """The last progress, and its phase."""
        self._shown: tuple[Phase | None, float] = (None, -math.inf)

    def is_due(self, phase: Phase, progress: Progress | None, now: float) -> bool:
        """Return whether to show something: new progress, a new phase, or the same after a while."""
        shown_phase, shown_at = self._shown
        # Half of it, so that a poll that comes a little early is not skipped.
        recent = 0 <= now - shown_at < DISPLAY_INTERVAL_S / 2
        return progress is not None or shown_phase is not phase or not recent

    def show(self, run: Run, progress: Progress | None, usd: float, now: float) -> None:
        """Show the progress; None: the last one of this phase."""
        if progress is not None:
            self._known = (run.phase, progress)
        self._shown = (run.phase, now)
        phase, known = self._known
        self._screen.progress(run, known if phase is run.phase else Progress(), usd=usd)
