"""Progress: how far a training is, how fast, and why its GPUs are idle, by the status of its box."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vastrun.contract.outcome import IdleGpus, WaitsFor
from vastrun.launcher.config import program_of, read_job
from vastrun.launcher.core import BoxStatus, Progress
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.labels import TAKES_SLOTS
from vastrun.launcher.decisions.job_shape import shape_of, stage_text, steps_of
from vastrun.launcher.decisions.slow_training import IDLE_GPUS, idle_gpus_text, waits_text
from vastrun.launcher.flow.pace import Pace, stages_left

if TYPE_CHECKING:
    from vastrun.launcher.flow.context import RunContext
    from vastrun.launcher.ports import Ledger


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


def _until_figure(text: str) -> str:
    """Return the text before its first digit: the figures of a reason differ from time to time."""
    return re.split(r"\d", text, maxsplit=1)[0]


def progress_of(box_status: BoxStatus, spec: JobSpec, pace: Pace, now: float) -> Progress:
    """Return the progress that is shown to the user."""
    planned = steps_of(spec)  # the box's own number is not trusted
    return Progress(
        activity=activity_of(box_status, spec),
        step=box_status.step if reports_step(box_status) else None,
        steps=last_step(spec, box_status) or None,
        stage=stage_text(program_of(spec).stages, box_status.step),
        loss=box_status.loss,
        left_s=pace.left_s(planned, now, stages_left(spec, box_status.step)) if planned else None,
    )


def last_step(spec: JobSpec, box_status: BoxStatus) -> int:
    """Return the last step in the job, else the box's number; 0: unknown."""
    return steps_of(spec) or box_status.steps


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
    return program_of(spec).reports_steps or (spec.success is not None and spec.success.steps is not None)


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
        if self.has_started or box_status.box != "running":
            return
        if spec.hold is not None:
            self.has_started = box_status.onstart_step == TRAIN
        elif program_of(spec).reports_steps:
            self.has_started = self._steps(box_status)
        else:
            self.has_started = self._runs(box_status, spec, now)

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


@dataclass
class ProgressReport:
    """Shows a training's progress, and saves it to the run's row, from poll to poll."""

    pace: Pace = field(default_factory=Pace)
    has_done_steps: bool = False
    """True once all planned steps are done: the program may end at any moment."""
    _start: TrainingStartDetector = field(default_factory=TrainingStartDetector)
    _saved_at: float = 0.0
    _onstart_step: str = ""
    _waits: set[WaitsFor] = field(default_factory=set)
    """Reasons for idle GPUs that were reported."""
    _reported: set[str] = field(default_factory=set)
    """Activities before the start of the training that were reported."""

    @property
    def has_started(self) -> bool:
        """True once the training has started."""
        return self._start.has_started

    @property
    def has_reported_step(self) -> bool:
        """True once the box has reported a step of its start."""
        return self._onstart_step != ""

    def may_follow_log(self, spec: JobSpec) -> bool:
        """Return whether the log may be shown between two polls.

        Not before its lines could stand above the report of what they belong to: a step of the box, or the
        start of the ranks of the onboard trainer.
        """
        return self.has_started or (not program_of(spec).reports_steps and self._onstart_step == TRAIN)

    def save(self, context: RunContext, box_status: BoxStatus) -> None:
        """Update the screen and the run's row."""
        now, planned = context.now(), steps_of(context.spec) or math.inf
        self.has_done_steps = box_status.step >= planned
        done = program_of(context.spec).work_done(min(box_status.step, planned))
        self.pace.observe(done, now, stages_left(context.spec, box_status.step))
        context.show(progress_of(box_status, context.spec, self.pace, now))
        # Not at each step: a save waits for the disk, and several nodes save to one ledger.
        due = box_status.box == "ended" or now - self._saved_at >= 5.0
        if box_status.step != context.run.step and due:
            self._saved_at = now
            steps = last_step(context.spec, box_status)
            steps_per_s = self.pace.steps_per_s or context.run.steps_per_s
            context.save(step=box_status.step, steps=steps, steps_per_s=steps_per_s)

    def show(self, context: RunContext, box_status: BoxStatus) -> None:
        """Report a new step of the box between the last log lines before it and its own first ones."""
        text, step = context.new_log(), box_status.onstart_step
        if step != self._onstart_step:
            before, text = split_at(text, step)
            context.services.screen.log(before)
            self._onstart_step = step
            context.report(step)
        activity, had_started = activity_of(box_status, context.spec), self.has_started
        self._start.observe(box_status, context.spec, context.now())
        if self.has_started:
            if not had_started:
                context.report(_start_text(context.spec, box_status))
        elif activity not in ("", "running", box_status.onstart_step, *self._reported):
            self._reported.add(activity)
            context.report(activity)
        context.services.screen.log(text)
        self._report_idle_gpus(context, box_status.idle_gpus)

    def _report_idle_gpus(self, context: RunContext, idle: IdleGpus | None) -> None:
        """Report a new reason; a launcher that resumes the run finds earlier ones among its events."""
        if idle is None or idle.waits_for in self._waits:
            return
        self._waits.add(idle.waits_for)
        events = context.services.ledger.events(context.run.id)
        texts = (event.text.partition("; ")[2] for event in events if event.text.startswith(IDLE_GPUS))
        if _until_figure(waits_text(idle)) not in map(_until_figure, texts):
            context.report(idle_gpus_text(idle))


def _start_text(spec: JobSpec, box_status: BoxStatus) -> str:
    if spec.hold is not None:
        return f"{TAKES_SLOTS}: {spec.hold.slots}"
    if not reports_step(box_status):
        return "the program runs"
    steps = last_step(spec, box_status)
    return f"training: step {box_status.step}{f' of {steps}' if steps else ''}"


def resumed_step(spec: JobSpec, parent: str | None, ledger: Ledger) -> int:
    """Return the step from which a run of the job continues after `parent`; 0: it starts from scratch.

    By the last steps seen of earlier runs: their newest checkpoint may be a little older.
    """
    while parent is not None:
        run = ledger.get(parent)
        if run.step:  # another stage, or another model, counts steps of its own
            return run.step if shape_of(read_job(run.spec_json)) == shape_of(spec) else 0
        parent = run.parent
    return 0
