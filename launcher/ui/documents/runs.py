"""Documents of runs, of hosts and orphaned machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vastrun.contract.outcome import Outcome
from vastrun.launcher.commands.queries import Explanation, RunDetail, RunRow, UsdSource
from vastrun.launcher.core import BoxStatus, Event, LeftOutFiles, Run, StepEnd, UserRequest
from vastrun.launcher.core import Verdict as RunVerdict
from vastrun.launcher.decisions.advice import advice_for
from vastrun.launcher.decisions.remaining_lease import RemainingLease
from vastrun.launcher.decisions.stages import StageCost, stage_name
from vastrun.launcher.ui.documents.document import Document


class RunDocument(Document, Run):
    """A run: its row of the ledger."""

    printed_properties = ("verdict",)

    request: UserRequest
    """Request of its user that its driver has yet to carry out."""
    usd: float
    """Cost so far, or in all."""
    at_most_usd: float
    """Max. of `usd` until the bill is settled: a machine may be charged after its end."""
    usd_source: UsdSource
    driver: str | None
    """Launcher that drives it now."""
    download_left_s: float | None
    """Seconds left to download its outputs: its training has ended, and no launcher drives it; else null."""
    lease: RemainingLease | None
    """Remaining time and cost of its leases, if the provider rejected the last launcher's key."""
    stage: str | None
    """Stage of its last step; null where its job trains only one."""
    nodes: Sequence[Run]
    """Machines of a run on several nodes, by node."""

    @classmethod
    def of(cls, row: RunRow) -> RunDocument:
        """Make the document of a run."""
        nodes = row.machines if row.nodes else ()
        driver = None if row.driver is None else row.driver.who
        return cls.fill(row.run, row, driver=driver, stage=stage_name(row.run) or None, nodes=nodes)


class Runs(Document):
    """Runs: open ones first, then the newest; with --all, every one."""

    runs: Sequence[RunDocument]
    more: int
    """Number of ended runs that are left out."""


class RunDetails(Document):
    """One run in detail."""

    run: RunDocument
    events: Sequence[Event]
    """Its events, oldest first."""
    box: BoxStatus | None
    """Status of its machine; null if it was not reached: `note` gives the reason."""
    note: str
    boxes: Sequence[BoxStatus | None]
    """Status of each machine of a run on several nodes, in the order of `run.nodes`."""

    @classmethod
    def of(cls, detail: RunDetail) -> RunDetails:
        """Make the document of one run in detail."""
        boxes = [one.box_status for one in ((detail, *detail.nodes) if detail.nodes else ())]
        return cls.fill(detail, run=RunDocument.of(detail.row), box=detail.box_status, boxes=boxes)


class Attempt(Document):
    """One run of a chain."""

    id: str
    verdict: RunVerdict | None
    usd: float


class RunEndDocument(Document):
    """The end of a run, or its state while it continues."""

    run: RunDocument
    exit_code: int
    lease_ends_at: float | None
    """Latest time at which its machine destroys itself; null if it has no machine."""
    scores: Mapping[str, float]
    stages: Sequence[StageCost]
    """All stages of a job that trains several, with their costs."""
    attempts: Sequence[Attempt]
    """The run and the attempts before it."""
    usd_all_attempts: float
    next: str | None
    """Advice: what to try next."""

    @classmethod
    def of(cls, found: Explanation, attempts: Sequence[RunRow]) -> RunEndDocument:
        """Make the document of a run's end."""
        run = found.row.run
        return cls.fill(
            found,
            run=RunDocument.of(found.row),
            exit_code=run.exit_code(),
            attempts=[Attempt.fill(row.run, row) for row in attempts],
            usd_all_attempts=sum(row.usd for row in attempts),
            next=advice_for(run, checkpoint=found.checkpoint, not_shipped=found.not_shipped),
        )


class ResultFile(Document):
    """`result.json` in a run's folder."""

    run: RunDocument
    exit_code: int | None
    """Exit code; null while it is open."""
    scores: Mapping[str, float]
    checkpoint: str | None
    """Name of the newest downloaded checkpoint."""
    best_checkpoint: str | None
    next: str | None
    """Advice: what to try next."""


class ExplanationDocument(Document):
    """The evidence on a run's end."""

    run: RunDocument
    outcome: Outcome | None
    """Evidence that its machine wrote; null if there is none, or it was not downloaded."""
    stages: Sequence[StageCost]
    """All stages of a job that trains several, with their costs."""
    stacks: Sequence[str]
    """Files on this computer with the stacks of a hang."""
    idle_gpus: str
    """Sentence on GPUs that worked less than half of the time, and why; empty if that was not seen."""
    slow_machine: str
    """Sentence on a machine that trained far below its kind's speed; empty if it did not."""
    steps: Sequence[StepEnd]
    """Downloaded records of the steps on its machine."""
    left_out: LeftOutFiles
    """Files of its program that are not on this computer."""
    next: str | None
    """Advice: what to try next."""

    @classmethod
    def of(cls, found: Explanation) -> ExplanationDocument:
        """Make the document of an explanation."""
        advice = advice_for(found.row.run, checkpoint=found.checkpoint, not_shipped=found.not_shipped)
        return cls.fill(found, run=RunDocument.of(found.row), next=advice)
