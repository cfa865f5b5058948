"""Shapes of runs: how they stand, how they ended, what is brought home of them."""

from __future__ import annotations

from launcher.commands.bugreports import ReportPart
from launcher.commands.exporting import ExportedCheckpoint
from launcher.commands.queries import UsdSource
from launcher.core import BoxStatus, Cause, Event, Judgement, LeftOutFiles, Phase, Run, StepEnd, UserRequest
from launcher.core import Verdict as RunVerdict
from launcher.decisions.comparing import Difference
from launcher.decisions.fit import Fit
from launcher.decisions.lease_left import LeaseLeft
from launcher.ui.render.loglines import LogLine
from launcher.ui.schemas.shape import JsonShape
from trainer.contract.outcome import Outcome


class ShownNode(JsonShape):
    """One machine of a run that has several."""

    node: int
    id: str
    phase: Phase
    instance_id: str | None
    host: str
    usd_per_hour: float
    cause: Cause | None
    detail: str
    out_dir: str


class ShownRun(JsonShape, of=Run, without=["spec_json", "started_by"]):
    """A run: its row of the ledger."""

    user: str
    """Who launched it; empty: nobody knows."""

    wish: UserRequest
    """What its user asked for and its driver has yet to do."""
    verdict: RunVerdict | None
    """How it ended; null while it is open."""
    usd: float
    """What it cost so far, or in all."""
    usd_source: UsdSource
    driver: str | None
    """Who drives it now."""
    download_left_s: float | None
    """Seconds left to download its outputs: its training has ended, and no launcher drives it; else null."""
    lease: LeaseLeft | None
    """Time and cost left to its machines by their leases: the provider refused the last launcher's key."""
    nodes: list[ShownNode]
    """Of a run that has several machines: all of them, by node; a node that left may have had several."""


class Runs(JsonShape):
    """Runs: open ones first, then the newest; with --all, every one."""

    runs: list[ShownRun]
    more: int
    """So many that have ended are left out."""


class ShownBox(JsonShape, of=BoxStatus):
    """What one look at its box saw."""


class RunInDetail(JsonShape):
    """One run from near."""

    run: ShownRun
    events: list[Event]
    """Its diary, oldest first."""
    box: ShownBox | None
    """Null when its box was not seen; `note` says why."""
    note: str
    boxes: list[ShownBox | None]
    """Of a run that has several machines: what was seen of each, in the order of `run.nodes`."""


class Attempt(JsonShape):
    """One run of a chain."""

    id: str
    verdict: RunVerdict | None
    usd: float


class Ending(JsonShape):
    """How a run ended, or where it stands when it goes on."""

    run: ShownRun
    exit_code: int
    lease_ends_at: float | None
    """When its box ends itself at the latest; null when it has no machine."""
    scores: dict[str, float]
    attempts: list[Attempt]
    """Those before it, and itself."""
    usd_all_attempts: float
    next: str | None
    """What to try next."""


class ResultFile(JsonShape):
    """What `result.json` in a run's folder says."""

    run: ShownRun
    exit_code: int | None
    """Null while it is open."""
    scores: dict[str, float]
    checkpoint: str | None
    """The newest that came home, by its name."""
    best_checkpoint: str | None
    next: str | None
    """What to try next."""


class ShownOutcome(JsonShape, of=Outcome):
    """The evidence that its box wrote."""


class Explained(JsonShape):
    """The evidence on a run's end."""

    run: ShownRun
    outcome: ShownOutcome | None
    """Null: its box wrote none, or it did not come home."""
    stacks: list[str]
    """Files on this computer with the stacks of a hang."""
    steps: list[StepEnd]
    """Of its box, as far as they came home."""
    left_out: LeftOutFiles
    """Files of its program that are not on this computer."""
    next: str | None
    """What to try next."""


class ShownLine(JsonShape, of=LogLine, optional=["node"]):
    """One line of a log: each is a document of its own. `node`: of a run that has several machines."""


class Rehearsed(JsonShape):
    """The steps of a job, done here."""

    steps: list[StepEnd]
    verdict: RunVerdict | None
    judgement: Judgement | None
    scores: dict[str, float]
    folder: str
    fit: Fit | None
    """Which GPUs hold the job; null: that was not asked for."""
    left_out: LeftOutFiles | None
    """Files of its program that would not be downloaded; null: it did not run."""


class WrittenReport(JsonShape):
    """The page that was written."""

    file: str
    bytes: int


class ShownDifference(JsonShape, of=Difference):
    """Something in which they differ."""

    change: float | None
    """How much larger the other number is, as a share of the first; null where that says nothing."""


class Differences(JsonShape):
    """In what two runs differ."""

    runs: list[str]
    differences: list[ShownDifference]


class Pulled(JsonShape):
    """What was downloaded."""

    run: str
    folder: str
    files: int
    bytes: int
    damaged: list[str]
    renamed: dict[str, str]
    """Where files lie that this computer's disk does not tell from others, by their paths on the box."""
    left_out: LeftOutFiles
    """Files of its program that were not downloaded."""


class Profiled(JsonShape):
    """The trace of some steps of a training."""

    run: str
    step: int
    """First recorded step, counted from 0."""
    steps: int
    trace: str
    """Path of the Chrome trace on this computer."""
    operations: str
    """Path of the table of its operations."""


class Exported(JsonShape, of=ExportedCheckpoint):
    """What was exported."""

    run: str
    file: str


class BugReport(JsonShape):
    """The bug report that was written."""

    file: str
    parts: list[ReportPart]
