"""Bills: cost of a run's machines, by what was seen of them. Pure functions that get `now` as an argument.

Everything that is not known to be free is charged, so that the ledger is not below the bill. Once the bill
is settled, it is the cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isclose
from typing import TypeVar

from vastrun.launcher.core import Cost, Instance, Meter, Phase, Rental, Run
from vastrun.launcher.core.labels import POOL

WATCHED_S = 60.0
"""Max. seconds between two looks at a machine between which its state is assumed unchanged."""
LATE_ROW_S = 60.0
"""Max. age in seconds of a provider's row of a machine."""
MAX_TAIL_S = 300.0
"""Max. seconds for which a bill continues after a machine's end: on Vast, billing ended from 22 s before to
290 s after that end, in 34 rentals of one user (2026-10)."""
_WHOLE_S = 1.0
"""Rounding of a provider's times, in seconds."""
CLOCK_S = 5.0
"""Min. difference of clocks in seconds: a smaller one may be a slow response."""
_METER_TIMES = ("began_at", "armed_at", "idle_at", "given_back_at", "absent_at", "answered_at")
_Record = TypeVar("_Record", Run, Rental, Meter)


def cost_usd(run: Run, now: float) -> float:
    """Return the cost of the run's machines so far, in USD."""
    return cost_of(run, now).usd


def held_usd(run: Run, now: float) -> float:
    """Return the USD that the run uses of its budgets: its reservation while it is open, then its cost.

    An open run that may cost more than its reservation uses that. A run on a slot uses nothing: its share
    is part of its holder's bill.
    """
    if run.provider == POOL:
        return 0.0
    usd = max_cost_usd(run, now)
    return usd if run.phase is Phase.ENDED else max(usd, run.reserved_usd)


def max_cost_usd(run: Run, now: float) -> float:
    """Return the max. cost of the run's machines so far, if they end now.

    Until the bill is settled, it may grow by the tail: a provider may charge a machine after its end.
    """
    if run.charged is not None:
        return run.charged.usd
    return cost_usd(run, now) + sum(_tail_usd(machine, now) for machine in runs_by_machine(run))


def _tail_usd(run: Run, now: float) -> float:
    if run.offer is None:
        return 0.0
    # A machine that only loaded was charged for its disk alone.
    has_run = gpu_seconds(run, now) > _WHOLE_S
    usd_per_hour = run.usd_per_hour if has_run else run.meter.extras.storage_usd_per_hour
    return run.offer.bill_tail_s / 3600 * usd_per_hour


def cost_of(run: Run, now: float) -> Cost:
    """Return the cost of the run's machines: as charged, or as counted until the bill is settled."""
    return run.charged or counted_of(run, now)


def counted_of(run: Run, now: float) -> Cost:
    """Return the counted cost of the run's machines so far: at least what is billed, as far as it was
    seen."""
    return sum((_cost_of_one(machine, now) for machine in runs_by_machine(run)), Cost())


def _cost_of_one(run: Run, now: float) -> Cost:
    meter = run.meter
    storage_usd_per_hour = meter.extras.storage_usd_per_hour
    # The disk is charged while the machine exists, the GPUs only while it runs: hence two counts of seconds.
    gpu_usd_per_hour = max(0.0, run.usd_per_hour - storage_usd_per_hour)
    gpu_s = max(0.0, gpu_seconds(run, now) - meter.former_gpu_s)
    rented_s = max(0.0, rented_seconds(run, now) - meter.former_rented_s)
    return Cost(
        gpu_usd=meter.former_gpu_usd + gpu_s / 3600 * gpu_usd_per_hour,
        storage_usd=meter.former_storage_usd + rented_s / 3600 * storage_usd_per_hour,
        traffic_usd=traffic_usd(meter),
    )


def traffic_usd(meter: Meter) -> float:
    """Return the cost of the traffic into the machine and out of it."""
    return meter.down_gb * meter.extras.down_usd_per_gb + meter.up_gb * meter.extras.up_usd_per_gb


def rented_seconds(run: Run, now: float) -> float:
    """Return the seconds from the rent until the machine was destroyed, or until now."""
    return 0.0 if run.rented_at is None else max(0.0, (run.released_at or now) - run.rented_at)


def gpu_seconds(run: Run, now: float) -> float:
    """Return the seconds for which the GPUs are billed: those rented, less those seen to be free."""
    meter = run.meter
    # One that was never seen to run may have begun after the last look, and was ended before the next. One
    # that answered although it was listed as loading ran since an unknown moment, and is charged (2026-09).
    may_have_run = run.released_at is not None and meter.began_at is None
    free_s = 0.0 if may_have_run and meter.armed_at is not None else meter.idle_s
    if meter.idle_at is not None and not may_have_run:
        free_s += _lately(meter.idle_at, run.released_at or now)
    return max(0.0, rented_seconds(run, now) - free_s)


def metered(run: Run, machine: Instance, now: float) -> Meter:
    """Return the run's meter after this look at its machine."""
    is_idle = machine.idle and not (machine.state == "loading" and run.meter.began_at is not None)
    meter = _metered_idle(run, machine, now) if is_idle else _metered_running(run, machine, now)
    # A row that is late, or a counter that restarted, takes nothing off what was seen before.
    down_gb, up_gb = max(meter.down_gb, machine.down_gb), max(meter.up_gb, machine.up_gb)
    return replace(meter, down_gb=down_gb, up_gb=up_gb, given_back_at=None, absent_at=None)


def disappeared(meter: Meter, at: float) -> Meter:
    """Return the meter of a machine that is gone although it was not asked to end.

    A machine that was never seen to run may have run all the time: its own lease may have ended it.
    """
    if meter.began_at is None:
        meter = replace(meter, idle_s=0.0, idle_at=None)
    return replace(meter, absent_at=at)


def seen(run: Run, machine: Instance, asked_at: float, heard_at: float) -> Run:
    """Return the run after a look at its machine, whose state is of a moment between the two times."""
    if machine.queued is not None and run.meter.began_at is None:
        # As if it had been ordered when its turn came: waiting costs nothing. While it waits, that
        # is now; once it runs, its provider lists its start and its host.
        waited_until = asked_at if machine.queued else asked_at - (machine.up_s or 0.0) - _WHOLE_S
        rented_at = max(run.rented_at or 0.0, waited_until)
        run = replace(
            run, rented_at=rented_at, meter=Meter(extras=run.meter.extras), host=machine.host or run.host
        )
    first = run.meter.began_at is None and run.meter.idle_at is None
    # Nobody knows when a price changed: a higher one counts from the last look at the machine, or from the
    # rent where there was none; a lower one from when it was heard.
    higher_since = 0.0 if first else asked_at - WATCHED_S
    # Whether its GPUs ran comes first: until now they did at the former price.
    return repriced(replace(run, meter=metered(run, machine, asked_at)), machine, higher_since, heard_at)


def repriced(run: Run, machine: Instance, higher_since: float, lower_since: float) -> Run:
    """Return the run at the current price of its machine; the cost until then stays.

    A higher price counts from `higher_since`, a lower one from `lower_since`.
    """
    former = (run.usd_per_hour, run.meter.extras.storage_usd_per_hour)
    price = (machine.usd_per_hour, machine.extras.storage_usd_per_hour)
    is_same = all(isclose(*pair, rel_tol=1e-6) for pair in zip(former, price, strict=True))
    if not machine.usd_per_hour or run.rented_at is None or is_same:
        return run
    since = max(run.rented_at, higher_since) if price > former else lower_since
    # What it cost so far is fixed in the meter; only the seconds from here on count at the new price.
    cost = _cost_of_one(run, since)
    meter = replace(
        run.meter,
        extras=machine.extras,
        former_gpu_usd=cost.gpu_usd,
        former_storage_usd=cost.storage_usd,
        former_gpu_s=gpu_seconds(run, since),
        former_rented_s=rented_seconds(run, since),
    )
    return replace(run, usd_per_hour=machine.usd_per_hour, meter=meter)


def rented_at(run: Run, machine: Instance, now: float) -> float:
    """Return when the machine started to cost: the provider's time, limited to between the order and now."""
    return min(max(run.rented_at or now, _here(run, machine.rented_at)), now)


def with_machine(run: Run, rental: Rental) -> Run:
    """Return the run as if that further machine were its only one."""
    return replace(
        run,
        instance_id=rental.instance_id,
        usd_per_hour=rental.usd_per_hour,
        rented_at=rental.rented_at,
        released_at=rental.released_at,
        meter=rental.meter,
        rentals=(),
        charged=None,
    )


def runs_by_machine(run: Run) -> Sequence[Run]:
    """Return the run once for each machine that it had, as if that were its only one."""
    every = (run, *(with_machine(run, rental) for rental in run.rentals))
    return [one for one in every if one.rented_at is not None]


def machine_ids(run: Run) -> frozenset[str]:
    """Return the ids of all machines of the run, former ones included."""
    noted = (run.instance_id, *(rental.instance_id for rental in run.rentals))
    return frozenset(one for one in noted if one is not None)


def released_at(run: Run, machine_id: str) -> float | None:
    """Return when that machine of the run ended; None: it exists, or is not the run's."""
    if machine_id == run.instance_id:
        return run.released_at
    return next((one.released_at for one in run.rentals if one.instance_id == machine_id), None)


def has_ended(run: Run, machine_id: str) -> bool:
    """Return whether the provider destroyed that machine of the run, and confirmed it.

    A machine that disappeared has not: it may come back.
    """
    if machine_id == run.instance_id:
        return run.phase is Phase.ENDED and run.meter.given_back_at is not None
    return any(one.instance_id == machine_id and one.meter.absent_at is not None for one in run.rentals)


def rental_of(run: Run, machine: Instance, asked_at: float, heard_at: float) -> Rental:
    """Return the further machine after a look at it, updated from its previous record."""
    known = next((one for one in run.rentals if one.instance_id == machine.id), None)
    if known is None:
        rented_at = min(max(run.created_at, _here(run, machine.rented_at)), asked_at)
        meter = Meter(extras=machine.extras)
        known = Rental(
            instance_id=machine.id, usd_per_hour=machine.usd_per_hour, rented_at=rented_at, meter=meter
        )
    own = seen(replace(with_machine(run, known), released_at=None), machine, asked_at, heard_at)
    return replace(known, usd_per_hour=own.usd_per_hour, released_at=None, meter=own.meter)


def with_rental(run: Run, rental: Rental) -> tuple[Rental, ...]:
    """Return the run's further machines, with that one replaced or added."""
    return (*(one for one in run.rentals if one.instance_id != rental.instance_id), rental)


def by_clock(run: Run, ahead_s: float | None) -> Run:
    """Return the run with its times corrected by a change of this computer's clock.

    `ahead_s`: seconds by which it is ahead of the provider's clock now; None: unknown.
    """
    if ahead_s is None or run.clock_ahead_s is None:
        return run if ahead_s is None else replace(run, clock_ahead_s=ahead_s)
    by_s = ahead_s - run.clock_ahead_s
    if abs(by_s) < CLOCK_S:
        return run
    rentals = (_shifted(one, by_s, "rented_at", "released_at") for one in run.rentals)
    # The provider cuts fractions of a second off: a second earlier, so that no bill is above the ledger.
    run = _shifted(run, by_s - _WHOLE_S, "rented_at")
    return replace(
        _shifted(run, by_s, "phase_at", "released_at"),
        clock_ahead_s=ahead_s,
        meter=_shifted(run.meter, by_s, *_METER_TIMES),
        rentals=tuple(replace(one, meter=_shifted(one.meter, by_s, *_METER_TIMES)) for one in rentals),
    )


def by_clock_of(run: Run, now: float, ahead_s: float | None) -> float:
    """Return `now` by the clock with which the run's times were written; `ahead_s`: as of `by_clock`."""
    if ahead_s is None or run.clock_ahead_s is None or abs(ahead_s - run.clock_ahead_s) < CLOCK_S:
        return now
    return now - ahead_s + run.clock_ahead_s


def _here(run: Run, moment: float) -> float:
    """Return a time of the provider by this computer's clock."""
    ahead_s = run.clock_ahead_s or 0.0
    return moment if abs(ahead_s) < CLOCK_S else moment + ahead_s - _WHOLE_S


def _metered_idle(run: Run, machine: Instance, now: float) -> Meter:
    meter = run.meter
    if meter.began_at is None and machine.state == "loading":
        if meter.armed_at is not None and now - meter.armed_at > LATE_ROW_S:
            # It answered so long ago that a late row does not explain why it is idle.
            return replace(meter, began_at=run.rented_at, idle_s=0.0, idle_at=None)
        # It loads before it runs: all of its life was free so far.
        return replace(meter, idle_s=max(0.0, now - (run.rented_at or now)), idle_at=now)
    if meter.began_at is None:
        # It ran and ended between two looks.
        return replace(meter, began_at=meter.idle_at or run.rented_at, idle_at=now)
    free_s = 0.0 if meter.idle_at is None else _lately(meter.idle_at, now)
    return replace(meter, idle_s=meter.idle_s + free_s, idle_at=now)


def _metered_running(run: Run, machine: Instance, now: float) -> Meter:
    meter = run.meter
    if meter.began_at is not None and meter.idle_at is None:
        return meter
    since = meter.idle_at or run.rented_at or now
    free_s = 0.0
    if machine.up_s is not None and machine.up_s >= 0:
        # The provider's word counts only within what was seen: it is not always the time that it bills.
        free_s = max(0.0, _lately(since, now) - machine.up_s)
        late_s = machine.up_s - (now - since)
        if 0 < late_s <= LATE_ROW_S:  # it ran already when a row that was late showed it idle
            free_s = -min(late_s, meter.idle_s)
    began_at = meter.began_at or since + free_s
    return replace(meter, began_at=began_at, idle_s=meter.idle_s + free_s, idle_at=None)


def _shifted(record: _Record, by_s: float, *names: str) -> _Record:
    """Return the record with its times of these names, as far as they are known, changed by `by_s`."""
    times = {name: getattr(record, name) for name in names}
    return replace(record, **{name: at + by_s for name, at in times.items() if at is not None})


def _lately(since: float, now: float) -> float:
    """Return the seconds since then; 0 after a gap longer than WATCHED_S."""
    return now - since if 0 <= now - since <= WATCHED_S else 0.0
