"""Read models of runs: what the reading commands show, from the ledger, the outputs and the provider."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from vastrun.contract import layout
from vastrun.contract.outcome import Outcome
from vastrun.launcher.commands.chains import continuation_of, has_checkpoint
from vastrun.launcher.config import read_job
from vastrun.launcher.core import (
    BoxStatus,
    Cause,
    Cost,
    Driver,
    Event,
    LeftOutFiles,
    MachineState,
    Phase,
    Proof,
    Run,
    StepEnd,
    UserRequest,
    Verdict,
)
from vastrun.launcher.core.bills import cost_of, cost_usd, max_cost_usd
from vastrun.launcher.core.errors import AuthError, GoneError, ProviderError, UnreachableError
from vastrun.launcher.core.labels import POOL
from vastrun.launcher.core.left_out import NONE_LEFT_OUT
from vastrun.launcher.core.market import ENDED
from vastrun.launcher.core.runs import attempts_until
from vastrun.launcher.decisions import remaining_lease
from vastrun.launcher.decisions.advice import advice_for
from vastrun.launcher.decisions.nodes import joint_diary
from vastrun.launcher.decisions.policy import download_left_s, lease_ends_at, lease_of, within_deadline
from vastrun.launcher.decisions.slow_training import IDLE_GPUS, SLOW_MACHINE, idle_gpus_text
from vastrun.launcher.decisions.stages import StageCost, stage_costs
from vastrun.launcher.flow.lease_watch import is_disarmed, rearm
from vastrun.launcher.flow.machines import find_machines
from vastrun.launcher.flow.services import Services
from vastrun.launcher.gate.box_reader import fetch_status
from vastrun.launcher.gate.manifest import INCOMING
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.outputs.folder import Outputs
from vastrun.launcher.ports import Ledger

if TYPE_CHECKING:
    from vastrun.launcher.core.job import JobSpec
    from vastrun.launcher.core.runs import CodeRecord

_DOWNLOADED = re.compile(r"checkpoint ((step-\d+) (?:downloaded|usable), [^;]*)")
_NAMED = re.compile(r"'([^'\0]{1,300})'|\"([^\"\0]{1,300})\"|([\w./-]{1,300})")
_MAX_NAMES = 100


class UsdSource(StrEnum):
    """Source of an amount in dollars."""

    COUNTED = "counted"
    """Counted by the ledger from what it saw: an upper bound of the charges."""
    CHARGED = "charged"
    """Charged by the provider: its bill is settled."""


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """A run in a table."""

    run: Run
    cost: Cost
    """Cost so far; total once the run has ended."""
    at_most_usd: float = 0.0
    """Max. USD until the bill is settled, if its machines end now."""
    driver: Driver | None = None
    request: UserRequest = UserRequest.NONE
    """Request of the user that its driver has not carried out yet."""
    nodes: Sequence[Run] = ()
    """Rows of its further nodes; their costs are included."""
    download_left_s: float | None = None
    """Seconds left to download the outputs of a training that has ended and that no launcher drives."""
    lease: remaining_lease.RemainingLease | None = None
    """Time and cost left to its machines by their leases: the provider refused the last launcher's key."""
    machine_state: MachineState | None = None
    """State of a machine that does not answer; None: all answer, or there is none yet."""
    chain: str = ""
    """Id of the first attempt at its job that it continues, or its own; empty: unknown."""

    @property
    def usd(self) -> float:
        return self.cost.usd

    @property
    def usd_source(self) -> UsdSource:
        """Source of the cost: charged when the bills of all machines are settled, else counted."""
        bills = [one.charged for one in self.machines if one.rented_at is not None or one.rentals]
        return UsdSource.COUNTED if None in bills or not bills else UsdSource.CHARGED

    @property
    def machines(self) -> Sequence[Run]:
        """The rows of all its nodes."""
        return (self.run, *self.nodes)

    @property
    def rented(self) -> Sequence[Run]:
        """The machines that it rents now; a slot is a share of a machine that another run has."""
        return [
            one
            for one in self.machines
            if one.provider != POOL and one.rented_at is not None and one.released_at is None
        ]

    @property
    def usd_per_hour(self) -> float:
        """USD per hour of all its machines."""
        return sum(one.usd_per_hour for one in self.machines)

    @property
    def verdict(self) -> Verdict | None:
        return self.run.verdict


@dataclass(frozen=True, kw_only=True)
class RunDetail:
    """One run from near."""

    row: RunRow
    events: Sequence[Event]
    box_status: BoxStatus | None = None
    """Status of its box; None when it could not be read: `note` says why."""
    note: str = ""
    nodes: Sequence[RunDetail] = ()
    """Its further nodes."""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """All evidence on the end of a run."""

    row: RunRow
    outcome: Outcome | None
    advice: str
    """Advice: what to try next."""
    stacks: tuple[str, ...] = ()
    """Files on this computer with the stacks of a hang."""
    last_event: Event | None = None
    steps: tuple[StepEnd, ...] = ()
    """Steps of its box, as far as they were downloaded."""
    left_out: LeftOutFiles = NONE_LEFT_OUT
    """Files of its program that are not on this computer."""
    idle_gpus: str = ""
    """Sentence on GPUs that worked less than half of the time, and why; empty: not seen."""
    slow_machine: str = ""
    """Sentence on a machine that trained far below its kind's speed; empty: it did not."""
    code: CodeRecord | None = None
    """The code that was shipped; None: it had none, or nothing was downloaded."""
    home: str = ""
    """The newest checkpoint that was downloaded before the outputs, and its age; empty: none, or they are."""

    @property
    def stages(self) -> Sequence[StageCost]:
        """All stages of a job that trains several."""
        ends = self.outcome.stages if self.outcome else ()
        return stage_costs(self.row.run, ends, self.row.usd_per_hour)

    @property
    def scores(self) -> Mapping[str, float]:
        """Its scores by name; empty where none were downloaded."""
        return (self.outcome.scores if self.outcome else None) or {}

    @property
    def lease_ends_at(self) -> float | None:
        """Epoch seconds at which the lease ends its machine; None without a machine."""
        return _lease_end(self.row.run)

    @property
    def says_success(self) -> tuple[Proof, ...]:
        return tuple(proof for proof in self.row.run.proofs if proof.holds)

    @property
    def says_otherwise(self) -> tuple[Proof, ...]:
        return tuple(proof for proof in self.row.run.proofs if proof.holds is False)


def row_of(ledger: Ledger, run: Run, now: float) -> RunRow:
    """Return the run with its cost, its driver and its further nodes."""
    row = with_cost(run, () if run.leader else ledger.runs(leader=run.id), now)
    row = replace(row, chain=attempts_until(run, ledger.get)[-1].id)
    if run.phase is Phase.ENDED:
        return row
    driver = ledger.driver(run.id)
    lease = lease_remaining(ledger, row.machines, now) if driver is None else None
    return replace(row, driver=driver, request=ledger.user_request(run.id), lease=lease)


def lease_remaining(
    ledger: Ledger, machines: Sequence[Run], now: float
) -> remaining_lease.RemainingLease | None:
    """Return what their leases leave those machines of a run that the key did not reach; None: all are."""
    left = []
    for run in machines:
        lease = remaining_lease.estimate_remaining_lease(run, _spec_of(run), now)
        if lease is not None and remaining_lease.is_left_to_lease(ledger.events(run.id)):
            left.append(lease)
    return remaining_lease.sum_leases(left)


def with_cost(run: Run, nodes: Sequence[Run], now: float) -> RunRow:
    """Return the run with what it and its further nodes cost."""
    cost = sum((cost_of(one, now) for one in nodes), cost_of(run, now))
    return RunRow(
        run=run,
        cost=cost,
        at_most_usd=sum(max_cost_usd(one, now) for one in (run, *nodes)),
        nodes=nodes,
        machine_state=next(filter(None, map(_machine_state, (run, *nodes))), None),
        chain="" if run.parent else run.id,
    )


def _machine_state(run: Run) -> MachineState | None:
    """Return the state of the run's machine, as its launchers last saw it; None: it answered."""
    is_missing = run.meter.absent_at is not None
    if run.released_at is not None or (is_missing and run.phase is Phase.DESTROY):
        return MachineState.GONE
    if is_missing:
        return MachineState.NOT_LISTED
    return MachineState.NOT_ANSWERING if run.meter.silent else None


def all_rows(ledger: Ledger, now: float) -> list[RunRow]:
    """List every run: open ones first, then the newest."""
    return rows_of(ledger, ledger.runs(members=True), now)


def chains_of(rows: Iterable[RunRow]) -> list[list[RunRow]]:
    """Group rows by the attempts at one job, the open and the newest ones first."""
    chains: dict[str, list[RunRow]] = defaultdict(list)
    for row in rows:
        chains[row.chain].append(row)
    return [
        sorted(chain, key=lambda row: (row.run.phase is Phase.ENDED, -row.run.created_at))
        for chain in chains.values()
    ]


def newest_rows(ledger: Ledger, now: float, ended: int) -> list[RunRow]:
    """List the open runs and the `ended` newest ones that have ended, newest first, with earlier attempts."""
    open_runs = ledger.runs(open_only=True)
    ended_runs = [run for run in ledger.runs(newest=ended + len(open_runs)) if run.phase is Phase.ENDED]
    listed = {run.id: run for run in [*open_runs, *ended_runs[:ended]]}
    for run in list(listed.values()):
        listed |= {one.id: one for one in attempts_until(run, ledger.get)}
    return rows_of(ledger, [*listed.values(), *ledger.runs(leader=list(listed))], now)


def rows_of(ledger: Ledger, runs: Sequence[Run], now: float) -> list[RunRow]:
    """Return the runs with costs, drivers and their further nodes, which `runs` has, too; open ones first."""
    drivers, requests = ledger.drivers(), ledger.user_requests()
    nodes: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        nodes[run.leader].append(run)
    rows, by_id = [], {run.id: run for run in nodes[""]}
    for run in sorted(nodes[""], key=lambda run: run.phase is Phase.ENDED):
        row = with_cost(run, sorted(nodes[run.id], key=lambda node: node.node), now)
        row = replace(row, chain=attempts_until(run, by_id.get)[-1].id)
        if run.phase is not Phase.ENDED:
            request = requests.get(run.id, UserRequest.NONE)
            driver = drivers.get(run.id)
            lease = lease_remaining(ledger, row.machines, now) if driver is None else None
            row = replace(row, driver=driver, request=request, lease=lease)
        rows.append(row)
    return rows


def detail_of(services: Services, run: Run, now: float) -> RunDetail:
    """Return the run with its diary and, while it has a machine that answers, a look at it.

    A lease that was killed while no launcher drove the run is armed again; the diary records it.
    """
    rows = () if run.leader else services.ledger.runs(leader=run.id)
    detail, nodes = _detail(services, run, now), [_detail(services, node, now) for node in rows]
    events = joint_diary(detail.events, [node.events for node in nodes])
    return replace(detail, nodes=nodes, events=events)


def _detail(services: Services, run: Run, now: float) -> RunDetail:
    row, events = row_of(services.ledger, run, now), services.ledger.events(run.id)
    if run.phase not in (Phase.SHIP, Phase.TRAIN, Phase.COLLECT):
        return RunDetail(row=row, events=events)
    try:
        row, box_status, news = look_at(services, row, now, keep_armed=row.driver is None)
    except (ProviderError, AuthError) as error:
        return RunDetail(row=row, events=events, note=str(error))
    if news and box_status is not None and not (events and events[-1].text == news):
        event = Event(run_id=run.id, at=now, phase=run.phase, text=news, usd=cost_usd(run, now))
        services.ledger.add_event(event)
        events = [*events, event]
    return RunDetail(row=row, events=events, box_status=box_status, note=news)


def with_download(row: RunRow, box_status: BoxStatus | None, now: float) -> RunRow:
    """Return the row with the time that is left for its download, where no launcher is at it."""
    left_s = None if box_status is None or row.driver is not None else download_left_s(box_status)
    ends_at = _lease_end(row.run)
    if left_s is None or ends_at is None:
        return row
    return replace(row, download_left_s=max(0.0, min(left_s, ends_at - now)))


def diary_of(ledger: Ledger, run: Run) -> list[Event]:
    """Return the run's diary, with what all of its nodes had cost by each line."""
    nodes = () if run.leader else ledger.runs(leader=run.id)
    return joint_diary(ledger.events(run.id), [ledger.events(node.id) for node in nodes])


def explain(ledger: Ledger, run: Run, now: float) -> Explanation:
    """Gather the evidence on a run."""
    outputs = Outputs(run)
    events = [event for event in diary_of(ledger, run) if not event.told]
    stacks = sorted(str(path) for path in outputs.path(layout.STACKS).glob("rank-*.txt"))
    outcome = outputs.outcome()
    return Explanation(
        row=row_of(ledger, run, now),
        outcome=outcome,
        idle_gpus=_idle_gpus(outcome, events),
        slow_machine=_last_text(events, SLOW_MACHINE),
        advice=_advice(ledger, run),
        stacks=tuple(stacks),
        last_event=events[-1] if events else None,
        steps=outputs.steps(),
        left_out=outputs.left_out(),
        code=outputs.code(),
        home="" if outcome else _home(events, run, now, outputs.folder),
    )


def _home(events: Sequence[Event], run: Run, now: float, folder: Path) -> str:
    """Describe the newest checkpoint here, and name one whose download has begun."""
    ended_at = run.ended_at
    incoming = max((path.stem for path in (folder / INCOMING).glob("step-*")), default="")
    for event in reversed(events):
        if found := _DOWNLOADED.match(event.text):
            minutes = ((ended_at or now) - event.at) / 60
            when = f"{minutes:.0f} min {'before the run ended' if ended_at else 'ago'}"
            newer = f"; {incoming} is not whole" if incoming not in ("", found[2]) else ""
            return f"{found[1]}, {when}{newer}"
    if run.cause is Cause.OUTPUTS_LOST and not incoming:
        return "no checkpoint; the log and metrics until its last answer"
    return f"no checkpoint; {incoming} is not whole" if incoming else ""


def _advice(ledger: Ledger, run: Run) -> str:
    """Name one thing to do next: with a run that goes on already, nothing is to be started."""
    if run.cause is None or (later := continuation_of(ledger, run)) is None:
        return advice_for(run, checkpoint=has_checkpoint(ledger, run), not_shipped=missing_file(run))
    if later.phase is not Phase.ENDED:
        return f"{later.id} continues it: vastrun attach {later.id}"
    return f"{later.id} continued it and ended {later.verdict}: vastrun why {later.id}"


def _idle_gpus(outcome: Outcome | None, events: Sequence[Event]) -> str:
    """Describe idle GPUs by the evidence, else by the last report while it ran; empty: there is none."""
    if outcome is not None and outcome.idle_gpus is not None:
        return idle_gpus_text(outcome.idle_gpus)
    return _last_text(events, IDLE_GPUS)


def _last_text(events: Sequence[Event], begins: str) -> str:
    """Return the last report that begins so; empty: there is none."""
    return next((event.text for event in reversed(events) if event.text.startswith(begins)), "")


def _lease_end(run: Run) -> float | None:
    if run.offer is None:
        return None
    return lease_ends_at(run, lease_of(_spec_of(run), run.offer))


def _spec_of(run: Run) -> JobSpec:
    """Return the run's job; its machine may be kept no longer than until its deadline."""
    return within_deadline(read_job(run.spec_json), run.meter.began_at or run.rented_at or run.created_at)


def look_at(
    services: Services, row: RunRow, now: float, *, keep_armed: bool = False
) -> tuple[RunRow, BoxStatus | None, str]:
    """Look at the run's machine. Return the row with what was seen, the status of the box, and a message if
    it does not answer or its lease was rearmed. Raises ProviderError, AuthError.
    """
    try:
        box_status, news = _check_box(services, row.run, keep_armed=keep_armed)
    except GoneError as error:
        return replace(row, machine_state=MachineState.NOT_LISTED), None, str(error)
    except UnreachableError as error:
        return replace(row, machine_state=MachineState.NOT_ANSWERING), None, str(error)
    return with_download(replace(row, machine_state=None), box_status, now), box_status, news


def _check_box(services: Services, run: Run, *, keep_armed: bool) -> tuple[BoxStatus, str]:
    """Return the status of the box, and a message if its lease was rearmed."""
    machines = find_machines(run, services.provider)
    if not machines:
        raise GoneError("the provider no longer lists its machine")
    try:
        with closing(services.provider.connect(machines[0])) as remote:
            box_status = fetch_status(remote)
            if not keep_armed or run.phase is not Phase.TRAIN or not is_disarmed(box_status):
                return box_status, ""
            news = rearm(run, _spec_of(run), machines[0], remote, services)
            return fetch_status(remote), news
    except UnreachableError as error:
        if (state := machines[0].state) in ("running", "loading", ENDED):
            raise
        raise GoneError(f"the provider lists its machine as {one_line(state)}") from error


def missing_file(run: Run) -> str:
    """Say what the program names that was not shipped, why, and what to add to the job: "conf/local.yaml is
    ignored by git, so it was not uploaded; add it to code.include".

    Empty where the run failed for another reason. Its machine words the detail: the names in it are only
    looked for within the code folder.
    """
    if run.cause is not Cause.USER_ERROR:
        return ""
    from vastrun.launcher.bundle.checkout import data_entry, why_not_shipped  # slow to import: all that packs

    spec = read_job(run.spec_json)
    names = (word.rstrip(".") for found in _NAMED.findall(run.detail) for word in found if word)
    for path in dict.fromkeys(islice(names, _MAX_NAMES)):
        if found := why_not_shipped(_in_code(PurePosixPath(path)), spec):
            name, why = found
            remedy = f"data: [{data_entry(name, spec)}]" if name.endswith("/") else "it to code.include"
            return f"{name} is {why}, so it was not uploaded; add {remedy}"
    return ""


def _in_code(path: PurePosixPath) -> str:
    """Return the path from the code folder, of a path on the machine."""
    folder = f"/{layout.CODE}/"
    return str(path).partition(folder)[2] if path.is_absolute() and folder in str(path) else str(path)
