"""`status` in text and as documents: the table of runs, one run in detail, its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from vastrun.contract.outcome import Outcome
from vastrun.launcher.commands.explanation import Explanation
from vastrun.launcher.commands.queries import RunDetail, RunRow, UsdSource, chains_of
from vastrun.launcher.core import BoxStatus, Event, LeftOutFiles, Phase, Progress, Run, StepEnd, UserRequest
from vastrun.launcher.core import Verdict as RunVerdict
from vastrun.launcher.core.boxes import RankStatus
from vastrun.launcher.core.runs import CodeOrigin, MachineState
from vastrun.launcher.decisions.deadlines import RemainingLease
from vastrun.launcher.decisions.job_shape import StageCost, stage_name
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.ui.document import Document
from vastrun.launcher.ui.render.amounts import duration, facts, moment, rough, short, table, usd
from vastrun.launcher.ui.render.verdict import (
    cost_text,
    lease_line,
    left_text,
    on_machines,
    silence_text,
    state_of,
)


def runs_table(
    rows: Sequence[RunRow], now: float, width: int | None = None, *, users: bool = False, more: int = 0
) -> str:
    """Write one line per run, with the cost of all of its attempts, the earlier ones indented below it.

    `width`: columns of the terminal; None: nothing is cut.

    `users`: show who started each. `more`: number of runs left out.
    """
    if not rows:
        return "no runs yet\n\nvastrun launch JOB.yaml starts one"
    cells = [line for chain in chains_of(rows) for line in _chain_lines(chain, now, users=users)]
    header = ("RUN", "JOB", *(["USER"] if users else []), "STATE", "STEP", "AGE", "COST")
    right = range(len(header) - 3, len(header))
    # The job's name loses a part first, then the user's.
    listed = table(header, cells, right=right, cut=(1, 2) if users else (1,), width=width)
    open_runs = [row for row in rows if row.run.phase is not Phase.ENDED]
    following = f"vastrun attach {open_runs[0].run.id}" if open_runs else f"vastrun why {rows[0].run.id}"
    rest = f"{more:,} more that have ended: vastrun status --all\n" if more else ""
    waiting = "".join(f"{row.run.id}: {state_of(row)}\n" for row in rows if row.download_left_s is not None)
    left = "".join(f"{left_text(row, now)}\n" for row in rows if row.lease is not None)
    return f"{listed}\n\n{rest}{waiting}{left}{following}"


def _chain_lines(chain: Sequence[RunRow], now: float, *, users: bool) -> Iterator[Sequence[str]]:
    """Yield the cells of the newest attempt, with the age and the cost of all, then of each earlier one."""
    for row in chain:
        is_newest, run = row is chain[0], row.run
        state = state_of(row) if row.download_left_s is None else f"ended, {rough(row.download_left_s)} left"
        began = min(one.run.created_at for one in chain) if is_newest else run.created_at
        cost = sum(one.usd for one in chain) if is_newest else row.usd
        name = (run.id, run.job) if is_newest else (f"  {run.id}", "")
        user = (run.started_by or "-",) if users else ()
        yield *name, *user, state, progress_of(run), duration(now - began), usd(cost)


def run_text(detail: RunDetail, now: float, width: int | None = None) -> str:
    """Write everything known about one run. `width`: as above."""
    run, row = detail.row.run, detail.row
    kind = "" if row.run.released_at or row.run.rented_at is None else " so far"
    if row.usd_source is UsdSource.CHARGED:
        kind = " charged,"
    parts = [
        facts(
            [
                ("run", f"{run.id} ({run.job})"),
                ("state", state_of(row)),
                ("because", run.detail),
                ("step", progress_of(run) if detail.box_status is None else _seen(run, detail.box_status)),
                ("cost", cost_text(row, f"{kind} at {usd(row.usd_per_hour)}/h{on_machines(row)}")),
                ("machine", "" if row.nodes else _machine(row)),
                ("image", run.image),
                ("lease", lease_line(row, now)),
                ("box", _box(detail.box_status, now) or detail.note),
                ("driver", _driver(row)),
                ("started by", run.started_by),
                ("parent", run.parent or ""),
                ("outputs", run.out_dir),
            ]
        )
    ]
    if detail.nodes:
        cells = [
            (str(one.node), one.phase.value, one.instance_id or "-", one.host or "-", usd(one.usd_per_hour))
            for one in row.machines
        ]
        parts.append(
            table(("NODE", "PHASE", "MACHINE", "HOST", "$/H"), cells, right=(0, 4), cut=(3, 2), width=width)
        )
    ranks = [one.box_status.ranks for one in (detail, *detail.nodes) if one.box_status is not None]
    if any(ranks):
        parts.append(_ranks([rank for those in ranks for rank in those]))
    if detail.events:
        lines = (
            f"{moment(event.at)}  {event.phase.value:<8} {one_line(event.text)}"
            for event in detail.events[-8:]
        )
        parts.append("\n".join(short(line, width) for line in lines))
    return "\n\n".join(parts)


def progress_of(run: Run) -> str:
    """Write the steps done of all, as in `340/1500`, and the stage where there are several."""
    stage = f" {name}" if run.step and (name := stage_name(run)) else ""
    return f"{run.step}/{run.steps}{stage}" if run.steps else str(run.step or "-")


def progress_text(progress: Progress) -> str:
    """Write the known parts of `step 340/1500 (23%)  loss 0.031  evaluating  ETA 12m`."""
    step, steps = progress.step, progress.steps
    parts = [
        f"step {step}{f'/{steps} ({step / steps:.0%})' if steps else ''}" if step else "",
        progress.stage if step else "",
        f"loss {progress.loss:.4g}" if step and progress.loss is not None else "",
        progress.activity,
        f"ETA {rough(progress.left_s)}" if progress.left_s is not None else "",
    ]
    return "  ".join(filter(None, parts))


def _seen(run: Run, box_status: BoxStatus) -> str:
    """Write the step and loss that the machine reports; `-` if no rank reports a step."""
    if not box_status.step and all(not rank.activity for rank in box_status.ranks):
        return "-"
    loss = "" if box_status.loss is None else f", loss {box_status.loss:.4g}"
    stage = stage_name(replace(run, step=box_status.step))
    return f"{box_status.step}/{run.steps or box_status.steps or '?'}{f' {stage}' if stage else ''}{loss}"


def _machine(row: RunRow) -> str:
    run, silence = row.run, silence_text(row)
    if run.instance_id is None:
        return ""
    host = f", host {run.host}" if run.host else ""
    return f"{run.instance_id} ({run.provider}{host}){silence and f', {silence}'}"


def _box(box_status: BoxStatus | None, now: float) -> str:
    if box_status is None:
        return ""
    step = f" in {box_status.onstart_step}" if box_status.onstart_step else ""
    ends = f" until {moment(box_status.lease_ends_at)}" if box_status.lease_ends_at else ""
    late = "" if abs(now - box_status.at) < 60 else f"; its clock is {duration(abs(now - box_status.at))} off"
    return f"{box_status.box}{step}; lease {box_status.lease}{ends}{late}"


def _driver(row: RunRow) -> str:
    if row.driver is None:
        return "" if row.verdict else f"none; vastrun attach {row.run.id}"
    host, _, rest = row.driver.who.partition(":")
    return f"process {rest.partition(':')[0]} on {host}"


def _ranks(ranks: Sequence[RankStatus]) -> str:
    cells = [
        (
            str(rank.rank),
            str(rank.pid or "-"),
            str(rank.step) if rank.activity else "-",
            rank.activity or "-",
            duration(rank.age_s) if rank.pid else "ended",
        )
        for rank in ranks
    ]
    return table(("RANK", "PID", "STEP", "PHASE", "SILENT FOR"), cells, right=(0, 1, 2, 4))


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
    machine_state: MachineState | None
    """State of a machine that does not answer; null: it answers, or there is none yet."""
    chain: str
    """Id of the first attempt at its job that it continues, or its own; empty: unknown."""
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
            next=found.advice,
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
    code: CodeOrigin | None
    """Origin of the code; `code.json` has its files, `code.patch` what was not committed."""
    code_digest: str | None
    job: Mapping[str, str | int | float | bool | None]
    """Options of the job that are not defaults, by key."""
    machine: Sequence[str]
    """Findings of the checks before the training: processor, GPUs, driver, disk."""
    packages: Mapping[str, str] | None
    """Versions of the machine's Python and of its packages."""


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
    home: str
    """The newest checkpoint that was downloaded before the outputs, and its age; empty if there is none."""
    left_out: LeftOutFiles
    """Files of its program that are not on this computer."""
    next: str | None
    """Advice: what to try next."""

    @classmethod
    def of(cls, found: Explanation) -> ExplanationDocument:
        """Make the document of an explanation."""
        return cls.fill(found, run=RunDocument.of(found.row), next=found.advice)
