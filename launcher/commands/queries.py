"""Read models of runs: what the reading commands show, from the ledger, the outputs and the provider."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from vastrun.launcher import core
from vastrun.launcher.config import read_job
from vastrun.launcher.core.bills import cost_of, cost_usd, max_cost_usd
from vastrun.launcher.core.errors import AuthError, GoneError, ProviderError, UnreachableError
from vastrun.launcher.core.labels import POOL
from vastrun.launcher.core.market import ENDED
from vastrun.launcher.core.runs import attempts_until
from vastrun.launcher.decisions import deadlines
from vastrun.launcher.decisions.nodes import joint_diary
from vastrun.launcher.decisions.policy import download_left_s, lease_ends_at, lease_of, within_deadline
from vastrun.launcher.flow.lease_watch import is_disarmed, rearm
from vastrun.launcher.flow.machines import find_machines
from vastrun.launcher.flow.services import Services
from vastrun.launcher.gate.box_reader import fetch_status
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.ports import Ledger

if TYPE_CHECKING:
    from vastrun.launcher.core.job import JobSpec


class UsdSource(StrEnum):
    """Source of an amount in dollars."""

    COUNTED = "counted"
    """Counted by the ledger from what it saw: an upper bound of the charges."""
    CHARGED = "charged"
    """Charged by the provider: its bill is settled."""


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """A run in a table."""

    run: core.Run
    cost: core.Cost
    """Cost so far; total once the run has ended."""
    at_most_usd: float = 0.0
    """Max. USD until the bill is settled, if its machines end now."""
    driver: core.Driver | None = None
    request: core.UserRequest = core.UserRequest.NONE
    """Request of the user that its driver has not carried out yet."""
    nodes: Sequence[core.Run] = ()
    """Rows of its further nodes; their costs are included."""
    download_left_s: float | None = None
    """Seconds left to download the outputs of a training that has ended and that no launcher drives."""
    lease: deadlines.RemainingLease | None = None
    """Time and cost left to its machines by their leases: the provider refused the last launcher's key."""
    machine_state: core.MachineState | None = None
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
    def machines(self) -> Sequence[core.Run]:
        """The rows of all its nodes."""
        return (self.run, *self.nodes)

    @property
    def rented(self) -> Sequence[core.Run]:
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
    def verdict(self) -> core.Verdict | None:
        return self.run.verdict


@dataclass(frozen=True, kw_only=True)
class RunDetail:
    """One run from near."""

    row: RunRow
    events: Sequence[core.Event]
    box_status: core.BoxStatus | None = None
    """Status of its box; None when it could not be read: `note` says why."""
    note: str = ""
    nodes: Sequence[RunDetail] = ()
    """Its further nodes."""


def row_of(ledger: Ledger, run: core.Run, now: float) -> RunRow:
    """Return the run with its cost, its driver and its further nodes."""
    row = with_cost(run, () if run.leader else ledger.runs(leader=run.id), now)
    row = replace(row, chain=attempts_until(run, ledger.get)[-1].id)
    if run.phase is core.Phase.ENDED:
        return row
    return _open_row(ledger, row, ledger.driver(run.id), ledger.user_request(run.id), now)


def _open_row(
    ledger: Ledger, row: RunRow, driver: core.Driver | None, request: core.UserRequest, now: float
) -> RunRow:
    """Return the row with what an open run adds, among that what the leases of its machines leave it."""
    leases = [
        lease
        for one in (row.machines if driver is None else ())
        if (lease := deadlines.estimate_remaining_lease(one, _spec_of(one), now)) is not None
        and deadlines.is_left_to_lease(ledger.events(one.id))
    ]
    return replace(row, driver=driver, request=request, lease=deadlines.sum_leases(leases))


def with_cost(run: core.Run, nodes: Sequence[core.Run], now: float) -> RunRow:
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


def _machine_state(run: core.Run) -> core.MachineState | None:
    """Return the state of the run's machine, as its launchers last saw it; None: it answered."""
    is_missing = run.meter.absent_at is not None
    if run.released_at is not None or (is_missing and run.phase is core.Phase.DESTROY):
        return core.MachineState.GONE
    if is_missing:
        return core.MachineState.NOT_LISTED
    return core.MachineState.NOT_ANSWERING if run.meter.silent else None


def all_rows(ledger: Ledger, now: float) -> list[RunRow]:
    """List every run: open ones first, then the newest."""
    return rows_of(ledger, ledger.runs(members=True), now)


def chains_of(rows: Iterable[RunRow]) -> list[list[RunRow]]:
    """Group rows by the attempts at one job, the open and the newest ones first."""
    chains: dict[str, list[RunRow]] = defaultdict(list)
    for row in rows:
        chains[row.chain].append(row)
    return [
        sorted(chain, key=lambda row: (row.run.phase is core.Phase.ENDED, -row.run.created_at))
        for chain in chains.values()
    ]


def newest_rows(ledger: Ledger, now: float, ended: int) -> list[RunRow]:
    """List the open runs and the `ended` newest ones that have ended, newest first, with earlier attempts."""
    open_runs = ledger.runs(open_only=True)
    ended_runs = [run for run in ledger.runs(newest=ended + len(open_runs)) if run.phase is core.Phase.ENDED]
    listed = {run.id: run for run in [*open_runs, *ended_runs[:ended]]}
    for run in list(listed.values()):
        listed |= {one.id: one for one in attempts_until(run, ledger.get)}
    return rows_of(ledger, [*listed.values(), *ledger.runs(leader=list(listed))], now)


def rows_of(ledger: Ledger, runs: Sequence[core.Run], now: float) -> list[RunRow]:
    """Return the runs with costs, drivers and their further nodes, which `runs` has, too; open ones first."""
    drivers, requests = ledger.drivers(), ledger.user_requests()
    nodes: dict[str, list[core.Run]] = defaultdict(list)
    for run in runs:
        nodes[run.leader].append(run)
    rows, by_id = [], {run.id: run for run in nodes[""]}
    for run in sorted(nodes[""], key=lambda run: run.phase is core.Phase.ENDED):
        row = with_cost(run, sorted(nodes[run.id], key=lambda node: node.node), now)
        row = replace(row, chain=attempts_until(run, by_id.get)[-1].id)
        if run.phase is not core.Phase.ENDED:
            request = requests.get(run.id, core.UserRequest.NONE)
            row = _open_row(ledger, row, drivers.get(run.id), request, now)
        rows.append(row)
    return rows


def detail_of(services: Services, run: core.Run, now: float) -> RunDetail:
    """Return the run with its diary and, while it has a machine that answers, a look at it.

    A lease that was killed while no launcher drove the run is armed again; the diary records it.
    """
    rows = () if run.leader else services.ledger.runs(leader=run.id)
    detail, nodes = _detail(services, run, now), [_detail(services, node, now) for node in rows]
    events = joint_diary(detail.events, [node.events for node in nodes])
    return replace(detail, nodes=nodes, events=events)


def _detail(services: Services, run: core.Run, now: float) -> RunDetail:
    row, events = row_of(services.ledger, run, now), services.ledger.events(run.id)
    if run.phase not in (core.Phase.SHIP, core.Phase.TRAIN, core.Phase.COLLECT):
        return RunDetail(row=row, events=events)
    try:
        row, box_status, news = look_at(services, row, now, keep_armed=row.driver is None)
    except (ProviderError, AuthError) as error:
        return RunDetail(row=row, events=events, note=str(error))
    if news and box_status is not None and not (events and events[-1].text == news):
        event = core.Event(run_id=run.id, at=now, phase=run.phase, text=news, usd=cost_usd(run, now))
        services.ledger.add_event(event)
        events = [*events, event]
    return RunDetail(row=row, events=events, box_status=box_status, note=news)


def with_download(row: RunRow, box_status: core.BoxStatus | None, now: float) -> RunRow:
    """Return the row with the time that is left for its download, where no launcher is at it."""
    left_s = None if box_status is None or row.driver is not None else download_left_s(box_status)
    ends_at = lease_end(row.run)
    if left_s is None or ends_at is None:
        return row
    return replace(row, download_left_s=max(0.0, min(left_s, ends_at - now)))


def diary_of(ledger: Ledger, run: core.Run) -> list[core.Event]:
    """Return the run's diary, with what all of its nodes had cost by each line."""
    nodes = () if run.leader else ledger.runs(leader=run.id)
    return joint_diary(ledger.events(run.id), [ledger.events(node.id) for node in nodes])


def lease_end(run: core.Run) -> float | None:
    """Return the epoch seconds at which the lease ends the run's machine; None without a machine."""
    if run.offer is None:
        return None
    return lease_ends_at(run, lease_of(_spec_of(run), run.offer))


def _spec_of(run: core.Run) -> JobSpec:
    """Return the run's job; its machine may be kept no longer than until its deadline."""
    return within_deadline(read_job(run.spec_json), run.meter.began_at or run.rented_at or run.created_at)


def look_at(
    services: Services, row: RunRow, now: float, *, keep_armed: bool = False
) -> tuple[RunRow, core.BoxStatus | None, str]:
    """Look at the run's machine. Return the row with what was seen, the status of the box, and a message if
    it does not answer or its lease was rearmed. Raises ProviderError, AuthError.
    """
    try:
        box_status, news = _check_box(services, row.run, keep_armed=keep_armed)
    except GoneError as error:
        return replace(row, machine_state=core.MachineState.NOT_LISTED), None, str(error)
    except UnreachableError as error:
        return replace(row, machine_state=core.MachineState.NOT_ANSWERING), None, str(error)
    return with_download(replace(row, machine_state=None), box_status, now), box_status, news


def _check_box(services: Services, run: core.Run, *, keep_armed: bool) -> tuple[core.BoxStatus, str]:
    """Return the status of the box, and a message if its lease was rearmed."""
    machines = find_machines(run, services.provider)
    if not machines:
        raise GoneError("the provider no longer lists its machine")
    try:
        with closing(services.provider.connect(machines[0])) as remote:
            box_status = fetch_status(remote)
            if not keep_armed or run.phase is not core.Phase.TRAIN or not is_disarmed(box_status):
                return box_status, ""
            news = rearm(run, _spec_of(run), machines[0], remote, services)
            return fetch_status(remote), news
    except UnreachableError as error:
        if (state := machines[0].state) in ("running", "loading", ENDED):
            raise
        raise GoneError(f"the provider lists its machine as {one_line(state)}") from error
