"""Statement: what the money of runs went to, the provider's bills, and ledger entries settled by them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from vastrun.launcher.core import Charge, Driver, Identity, Run, Settled, errors
from vastrun.launcher.core.bills import by_clock_of, runs_by_machine
from vastrun.launcher.cost.groups import Calendar, Group, GroupBy, group_of, group_spendings
from vastrun.launcher.cost.reconciliation import (
    NO_RUN,
    ReconciledBill,
    UnmatchedCharge,
    bill_of,
    charges_by_run,
    is_due,
    reconcile,
    settled_cost,
    unmatched_charge,
)
from vastrun.launcher.cost.spending import net_of_shares, spending_of
from vastrun.launcher.decisions.policy import DRIVER_TIMEOUT_S
from vastrun.launcher.ports import Ledger, Provider

_NO_IDENTITY = Identity(account="", clock_ahead_s=None)


@dataclass(frozen=True, kw_only=True)
class CostReport:
    """Costs of several runs, grouped."""

    by: GroupBy
    groups: Sequence[Group]
    total: Group
    since: float | None
    until: float | None
    """Epoch seconds, as they were asked for; None: they were not."""
    time_zone: str
    """Time zone of the days and months."""


def cost_report(
    ledger: Ledger,
    runs: Sequence[Run],
    now: float,
    *,
    by: GroupBy,
    since: float | None,
    until: float | None,
    calendar: Calendar,
) -> CostReport:
    """Add up what the runs cost in that time. Raises UsageError."""
    begin, end = -math.inf if since is None else since, math.inf if until is None else until
    if begin >= end:
        raise errors.UsageError("--since is not before --until")
    by_id = {run.id: run for run in ledger.runs()}
    every = net_of_shares([spending_of(run, now, ledger.events(run.id), by_id) for run in runs])
    spendings = [part for one in every if (part := one.within(begin, end)) is not None]
    return CostReport(
        by=by,
        groups=group_spendings(spendings, by, calendar),
        total=group_of("total", spendings),
        since=since,
        until=until,
        time_zone=calendar.zone_name(now),
    )


@dataclass(frozen=True, kw_only=True)
class UnclaimedCharge:
    """Sum of charges for a label that no run of this ledger has, or for what is no machine."""

    provider: str
    label: str
    """Label of the machine; what was charged, like `volume-12`, where that is none."""
    kind: UnmatchedCharge
    usd: float


@dataclass(frozen=True, kw_only=True)
class Reconciliation:
    """Comparison of charged with counted costs, run by run."""

    since: float
    runs: Sequence[ReconciledBill]
    unclaimed: Sequence[UnclaimedCharge]
    without_bill: Mapping[str, int]
    """Runs of providers that send no bill, by provider."""

    @property
    def explained(self) -> bool:
        """Nothing is left that has no explanation."""
        unexplained = any(stranger.kind is UnmatchedCharge.UNKNOWN_RUN for stranger in self.unclaimed)
        return not unexplained and all(one.explained for one in self.runs)


def reconciliation(
    ledger: Ledger, provider_of: Callable[[str], Provider], now: float, since: float
) -> Reconciliation:
    """Ask each provider what it charged for the runs that rented since then.

    Raises AuthError, ProviderError.
    """
    runs: list[ReconciledBill] = []
    unclaimed: list[UnclaimedCharge] = []
    without_bill: dict[str, int] = {}
    every = ledger.runs(members=True)
    for name in dict.fromkeys(run.provider for run in every):
        selected = [run for run in every if run.provider == name and _began_at(run) >= since]
        if not selected:
            continue
        provider = provider_of(name)
        if provider.abilities.charged is None:
            without_bill[name] = len(selected)
            continue
        of_provider = [run for run in every if run.provider == name]
        bills, found = reconciled_bills(ledger, provider, selected, of_provider, now)
        runs += bills
        unclaimed += _unclaimed(name, found.get(NO_RUN, ()), ledger.id, since)
    return Reconciliation(since=since, runs=runs, unclaimed=unclaimed, without_bill=without_bill)


def reconciled_bills(
    ledger: Ledger, provider: Provider, selected: Sequence[Run], known: Iterable[Run], now: float
) -> tuple[Sequence[ReconciledBill], Mapping[str, Sequence[Charge]]]:
    """Ask a provider what it charged for the runs meant; return their bills, and all charges by their runs.

    `provider`: one that sends bills. `known`: all of its runs whose charges may be among them. Raises
    AuthError, ProviderError.
    """
    assert provider.abilities.charged is not None
    charges = provider.abilities.charged(min(map(_began_at, selected)), now)
    found = charges_by_run(known, charges)
    identity = provider.abilities.account.identity() if provider.abilities.account else _NO_IDENTITY
    bills = [
        bill_of(
            run,
            found.get(run.id, ()),
            ledger.events(run.id),
            by_clock_of(run, now, identity.clock_ahead_s),
            identity.account,
        )
        for run in selected
    ]
    return [reconcile(bill) for bill in bills], found


def with_nodes(ledger: Ledger, run: Run) -> list[Run]:
    """Return the run and the rows of its further nodes, one for each machine."""
    return [run, *ledger.runs(leader=run.id)]


def _began_at(run: Run) -> float:
    """Return when its first machine was rented; minus infinity where it had none."""
    return min((one.rented_at or 0.0 for one in runs_by_machine(run)), default=-math.inf)


def _unclaimed(provider: str, charges: Iterable[Charge], ledger: str, since: float) -> list[UnclaimedCharge]:
    """One a label, the most expensive first; without what ended before."""
    usd_of: dict[tuple[str, UnmatchedCharge], float] = defaultdict(float)
    for charge in charges:
        if not charge.until or charge.until >= since:
            usd_of[charge.source or charge.label, unmatched_charge(charge, ledger)] += charge.usd
    found = [
        UnclaimedCharge(provider=provider, label=label, kind=kind, usd=usd)
        for (label, kind), usd in usd_of.items()
    ]
    return sorted(found, key=lambda stranger: -stranger.usd)


def settle(bills: Iterable[ReconciledBill], ledger: Ledger, who: str, now: float) -> frozenset[str]:
    """Note in each run what was charged for it; return the ids of those that cost this from now on.

    One that a launcher has changed since its bill was read is left as it is. Raises StorageError.
    """
    ledger = ledger.for_drivers()
    known = [(one.bill.run, cost) for one in bills if (cost := settled_cost(one)) is not None]
    driver = Driver(who=who, until=now + DRIVER_TIMEOUT_S)
    return frozenset(run.id for run, cost in known if run.charged == cost or _note(run, cost, ledger, driver))


def settle_due(ledger: Ledger, name: str, provider: Provider, who: str, now: float) -> None:
    """Settle the provider's runs of the last days whose bill is due.

    What cannot be asked or noted now is left to the next time.
    """
    if provider.abilities.charged is None:
        return
    with suppress(errors.AuthError, errors.ProviderError, errors.StorageError):
        runs = [run for run in ledger.runs(members=True, newest=1000) if run.provider == name]
        if due := [run for run in runs if is_due(run, now)]:
            bills, _ = reconciled_bills(ledger, provider, due, runs, now)
            settle(bills, ledger, who, now)


def _note(run: Run, cost: Settled, ledger: Ledger, driver: Driver) -> bool:
    try:
        ledger.hold(run.id, driver)
    except errors.HeldError:
        return False
    try:
        if unchanged := ledger.get(run.id) == run:
            ledger.save(replace(run, charged=cost), who=driver.who)
        return unchanged
    except errors.UnsignedError:  # another computer's, which settles it
        return False
    finally:
        ledger.release(run.id, driver.who)
