"""Reconciliation: a provider's charges compared with the ledger, and the reasons for differences. Pure.

A ledger may be above the bill, since it counts everything not known to be free. It should not be below.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from vastrun.launcher.core import LABEL_PREFIX, Cause, Charge, Cost, Event, Phase, Run, Settled
from vastrun.launcher.core.bills import MAX_TAIL_S, WATCHED_S, counted_of, machine_ids, runs_by_machine
from vastrun.launcher.core.labels import ledger_in
from vastrun.launcher.core.phases import BEFORE_TRAINING

NO_RUN = ""
"""Key of charges that belong to no known run."""
SETTLEMENT_S = 3600.0
"""Max. seconds from a machine's end until the bill has all of its cost."""
MAX_QUERY_AGE_S = 7 * 86_400.0
"""Max. age in seconds of bills that are queried automatically: one that is incomplete then stays so."""
ROUNDED_SHARE = 0.005
ROUNDED_USD = 0.001
"""Providers round prices and times: a difference up to the larger of the two counts as none."""
_NOTHING_USD = 1e-9
CHANGES = 3
"""Number of changes of a machine (start, change, end), each of which may be seen one look late."""
LAST_GB = 10.0
"""GB into and out of a machine in its last minute: more than 1 Gbit/s carries."""


class DifferenceReason(StrEnum):
    """Reason why a provider charged another sum than the ledger counts."""

    ROUNDED = "rounded"
    OTHER_ACCOUNT = "other_account"
    NOT_SETTLED = "not_settled"
    SEEN_LATE = "seen_late"
    PRICE_CHANGED = "price_changed"
    NOT_WATCHED = "not_watched"
    BILL_RAN_ON = "bill_ran_on"
    LAST_TRAFFIC = "last_traffic"


class UnmatchedCharge(StrEnum):
    """Kind of a charge that belongs to no run of this ledger."""

    NOT_A_RUN = "not_a_run"
    OTHER_LEDGER = "other_ledger"
    UNKNOWN_RUN = "unknown_run"
    OTHER_KIND = "other_kind"


@dataclass(frozen=True, kw_only=True)
class Bill:
    """A run with its cost by the ledger and by the provider."""

    run: Run
    counted: Cost
    """Cost by the ledger."""
    charges: Sequence[Charge]
    """Charges of the provider."""
    now: float
    silence_s: float = 0.0
    """Longest gap in its diary while it had a machine, in seconds."""
    boot_silence_s: float = 0.0
    """Longest gap before it trained, in seconds."""
    account: str = ""
    """Account of the bill; empty: unknown."""

    @property
    def charged_usd(self) -> float:
        return sum(charge.usd for charge in self.charges)

    @property
    def difference_usd(self) -> float:
        """USD charged less USD counted."""
        return self.charged_usd - self.counted.usd

    @property
    def machines(self) -> Sequence[Run]:
        """The run once for each machine that it had, as if that were the only one."""
        return runs_by_machine(self.run)

    @property
    def usd_per_s(self) -> float:
        """Highest price of its machines, in USD per second."""
        prices = [self.run.usd_per_hour, *(rental.usd_per_hour for rental in self.run.rentals)]
        return max(*prices, self.former_usd_per_hour) / 3600

    @property
    def former_usd_per_hour(self) -> float:
        """USD per hour of its GPUs before the last change of price; 0: there was no change."""
        meter = self.run.meter
        return meter.former_gpu_usd / meter.former_gpu_s * 3600 if meter.former_gpu_s else 0.0

    @property
    def tail_s(self) -> float:
        """Seconds of its machine that were charged beyond those counted, traffic apart."""
        more_usd = self.difference_usd - self.traffic_difference_usd
        return max(0.0, more_usd) / self.usd_per_s if self.usd_per_s else 0.0

    @property
    def traffic_difference_usd(self) -> float:
        """USD charged for traffic less USD counted."""
        return sum(charge.traffic_usd for charge in self.charges) - self.counted.traffic_usd

    @property
    def ended_by_itself(self) -> bool:
        """True if no launcher ended its machine: its end was not seen, or it still exists."""
        return self.run.meter.given_back_at is None


@dataclass(frozen=True, kw_only=True)
class ReconciledBill:
    """A bill with the reasons for its difference."""

    bill: Bill
    reasons: tuple[DifferenceReason, ...]
    unexplained_usd: float = 0.0
    """Part of the difference that the reasons cannot explain."""

    @property
    def explained(self) -> bool:
        return self.unexplained_usd == 0


def bill_of(run: Run, charges: Sequence[Charge], events: Iterable[Event], now: float, account: str) -> Bill:
    """Return the run's cost by the ledger and by the provider's charges."""
    machines = runs_by_machine(run)
    begin = min((one.rented_at for one in machines if one.rented_at is not None), default=now)
    end = max((one.released_at or now for one in machines), default=now)
    events_between = [event for event in events if begin < event.at < end]
    trains_at = next((event.at for event in events_between if event.phase not in BEFORE_TRAINING), end)
    return Bill(
        run=run,
        counted=counted_of(run, now),
        charges=charges,
        now=now,
        silence_s=_silence_s(begin, [event.at for event in events_between], end),
        boot_silence_s=_silence_s(
            begin, [event.at for event in events_between if event.at < trains_at], trains_at
        ),
        account=account,
    )


def reconcile(bill: Bill) -> ReconciledBill:
    """Explain the difference: by the first reason that covers it all, else by as many as needed."""
    left_usd = abs(bill.difference_usd)
    if left_usd < _NOTHING_USD:
        return ReconciledBill(bill=bill, reasons=())
    bounds = {reason: bound for reason, bound_of in BOUNDS.items() if (bound := bound_of(bill)) > 0}
    for reason, bound in bounds.items():
        if left_usd <= bound + _NOTHING_USD:
            return ReconciledBill(bill=bill, reasons=(reason,))
    reasons = []
    for reason, bound in bounds.items():
        reasons.append(reason)
        left_usd -= bound
        if left_usd <= _NOTHING_USD:
            return ReconciledBill(bill=bill, reasons=tuple(reasons))
    return ReconciledBill(bill=bill, reasons=tuple(reasons), unexplained_usd=left_usd)


def charges_by_run(runs: Iterable[Run], charges: Iterable[Charge]) -> Mapping[str, Sequence[Charge]]:
    """Return the charges of a provider by the id of their run; those of no run under NO_RUN.

    Machines are matched by id first: a user may have changed the label.
    """
    by_machine: dict[str, str] = {}
    by_label: dict[str, str] = {}
    for run in runs:
        by_label[run.label] = run.id
        by_machine |= dict.fromkeys(machine_ids(run), run.id)
    found: dict[str, list[Charge]] = defaultdict(list)
    for charge in charges:
        run_id = by_machine.get(charge.instance_id) or by_label.get(charge.label, NO_RUN)
        found[NO_RUN if charge.source else run_id].append(charge)
    return found


def unmatched_charge(charge: Charge, ledger: str) -> UnmatchedCharge:
    """Return the kind of a charge that belongs to no run of this ledger."""
    if charge.source:
        return UnmatchedCharge.OTHER_KIND
    if not charge.label.startswith(LABEL_PREFIX):
        return UnmatchedCharge.NOT_A_RUN
    return UnmatchedCharge.UNKNOWN_RUN if ledger_in(charge.label) == ledger else UnmatchedCharge.OTHER_LEDGER


def settles_at(run: Run) -> float:
    """Return the latest time at which all cost of the run is charged; inf: a machine of it still exists."""
    ends = [machine.released_at for machine in runs_by_machine(run)] or [None]
    return math.inf if None in ends else max(end for end in ends if end is not None) + SETTLEMENT_S


def _silence_s(begin: float, events_between: Sequence[float], end: float) -> float:
    return max(0.0, *(after - before for before, after in pairwise((begin, *sorted(events_between), end))))


def _other_account(bill: Bill) -> float:
    known = bool(bill.account and bill.run.account)
    return math.inf if known and bill.account != bill.run.account and not bill.charges else 0.0


def _not_settled(bill: Bill) -> float:
    is_open = bill.now < settles_at(bill.run) or not all(charge.is_readable for charge in bill.charges)
    return bill.counted.usd if is_open and bill.difference_usd < 0 else 0.0


def _seen_late(bill: Bill) -> float:
    return len(bill.machines) * CHANGES * WATCHED_S * bill.usd_per_s if bill.difference_usd < 0 else 0.0


def _price_changed(bill: Bill) -> float:
    former = bill.former_usd_per_hour
    by_usd = abs(bill.run.usd_per_hour - former) / 3600 if former else 0.0
    return by_usd * max(WATCHED_S, bill.silence_s)


def _not_watched(bill: Bill) -> float:
    # In any other run that trained, nothing stopped its GPUs until they were given back.
    unsure = bill.ended_by_itself or bill.run.cause in (
        Cause.PREEMPTED,
        Cause.LOST,
        Cause.OUTPUTS_LOST,
        Cause.HOST,
    )
    silence_s = bill.silence_s if unsure else bill.boot_silence_s
    return silence_s * bill.usd_per_s if bill.difference_usd < 0 else 0.0


def _bill_ran_on(bill: Bill) -> float:
    may_run_on = bill.run.offer is not None and bill.run.offer.bill_tail_s > 0
    is_more = bill.difference_usd > 0 and may_run_on
    return len(bill.machines) * MAX_TAIL_S * bill.usd_per_s if is_more else 0.0


def _last_traffic(bill: Bill) -> float:
    more_usd = bill.traffic_difference_usd
    extras = bill.run.meter.extras
    max_usd = LAST_GB * (extras.down_usd_per_gb + extras.up_usd_per_gb)
    if bill.difference_usd < 0:
        return 0.0
    return max(0.0, more_usd if bill.ended_by_itself else min(more_usd, max_usd))


BOUNDS: Mapping[DifferenceReason, Callable[[Bill], float]] = {
    DifferenceReason.ROUNDED: lambda bill: max(
        ROUNDED_USD, ROUNDED_SHARE * max(bill.counted.usd, bill.charged_usd)
    ),
    DifferenceReason.OTHER_ACCOUNT: _other_account,
    DifferenceReason.NOT_SETTLED: _not_settled,
    DifferenceReason.SEEN_LATE: _seen_late,
    DifferenceReason.PRICE_CHANGED: _price_changed,
    DifferenceReason.NOT_WATCHED: _not_watched,
    DifferenceReason.BILL_RAN_ON: _bill_ran_on,
    DifferenceReason.LAST_TRAFFIC: _last_traffic,
}
"""Max. USD of a bill's difference that each reason may explain; 0: none. The likeliest reason first."""


def settled_cost(one: ReconciledBill) -> Settled | None:
    """Return the run's cost by its bill; None: the bill is incomplete, or lower than can be explained.

    A list of charges may lack a part: then the counted cost stays.
    """
    cost = charged_cost(one.bill.charges)
    is_low = cost.usd <= 0 or (one.bill.difference_usd < 0 and not one.explained)
    if is_low or not is_whole(one.bill):
        return None
    # Of a machine that no launcher ended, or of several, the excess is not that of one end.
    is_single = len(one.bill.machines) == 1 and not one.bill.ended_by_itself
    return Settled(**vars(cost), tail_s=one.bill.tail_s if is_single else None)


def is_due(run: Run, now: float) -> bool:
    """Return whether the bill of the run should be complete by now, and was not seen complete yet."""
    return run.charged is None and run.phase is Phase.ENDED and 0 <= now - settles_at(run) <= MAX_QUERY_AGE_S


def is_whole(bill: Bill) -> bool:
    """Return whether the run ended long enough ago, and each of its machines was charged to its end."""

    def is_charged(machine: Run) -> bool:
        own = [charge.until for charge in bill.charges if charge.instance_id == (machine.instance_id or "")]
        return any(not until or until >= (machine.released_at or 0.0) for until in own)

    return (
        bill.run.phase is Phase.ENDED
        and bill.now >= settles_at(bill.run)
        and all(charge.is_readable for charge in bill.charges)
        and all(map(is_charged, bill.machines))
    )


def charged_cost(charges: Iterable[Charge]) -> Cost:
    """Return the sum of the charges by type, with no part below 0."""
    charges = list(charges)
    usd = sum(charge.usd for charge in charges)
    traffic_usd = _between(sum(charge.traffic_usd for charge in charges), usd)
    storage_usd = _between(sum(charge.storage_usd for charge in charges), usd - traffic_usd)
    return Cost(gpu_usd=usd - traffic_usd - storage_usd, storage_usd=storage_usd, traffic_usd=traffic_usd)


def _between(usd: float, max_usd: float) -> float:
    return min(max(0.0, usd), max(0.0, max_usd))
