"""Reused: what a batch that holds its machines rents and pays, beside the same one without.

The driver, its fleet and all decisions are the real ones. The market and its machines are the tests' fakes,
and time is theirs too: a wait takes none. A machine takes half a minute to come up and a run as long; a run
in ten crashes and is tried again, and now and then a machine is lost.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.figures import Claim, max_limit, report_claims
from tests.fakebox import Loading, Training
from tests.jobs import train_job
from tests.launcher.batch.world import NAME, BatchWorld
from tests.launcher.terminal import CRASH
from vastrun.launcher.core.batch import StopRules
from vastrun.launcher.core.bills import cost_usd
from vastrun.launcher.cost.spending import counted_in_total

POINTS, PARALLEL = 40, 5
_CRASHES_EACH = 10
_LOST_EACH_S = 300.0
_BUDGET_USD = 10_000.0
_NEVER = StopRules(same_cause=1_000_000, failed=1.0)
_TRAINING = Training(seconds=30.0)
NONE = max_limit(0)


@dataclass(frozen=True, kw_only=True)
class Bill:
    """What a batch came to."""

    verdicts: Mapping[str, int]
    rentals: int
    left: int
    usd: float
    ledger_usd: float
    hours: float


def run(points: int = POINTS, parallel: int = PARALLEL) -> bool:
    """Print both bills. True when few machines were rented, none was left, and no dollar is missing."""
    held, own = (measure(points, parallel, reuse) for reuse in ("auto", "never"))
    for name, bill in (("reuse: auto", held), ("reuse: never", own)):
        summary = (
            f"{points} points, {parallel} at once: {bill.rentals} machines, ${bill.usd:.2f}, "
            f"{bill.hours:.2f} h; {dict(bill.verdicts)}   n=1"
        )
        report_claims(f"reused, {name}", summary)
    claims = [
        Claim(points - sum(held.verdicts.values()), "points without a verdict", NONE),
        Claim(held.left + own.left, "machines left", NONE),
        Claim(held.rentals / parallel, "machines rented for each slot", max_limit(1.2)),
        Claim(held.usd / own.usd, "of the bill without reuse", max_limit(1.0)),
        Claim(abs(held.ledger_usd / held.usd - 1), "of the bill between it and the ledger", max_limit(0.005)),
    ]
    passed = [report_claims("reused", "", claim) for claim in claims]
    return all(passed)


def measure(points: int, parallel: int, reuse: str) -> Bill:
    """Drive a batch to its end, in its own time."""
    with tempfile.TemporaryDirectory(prefix="reused-") as folder:
        world = BatchWorld(Path(folder))
        market, job = world.market, train_job(retry={"signal": 1, "lost": 1})
        market.is_large = True
        market.usual = _TRAINING
        market.trainings = [_nth(number) for number in range(points)]
        market.loads = [Loading(seconds=30.0) for _ in range(2 * points)]
        world.submit(points, usd=_BUDGET_USD, parallel=parallel, reuse=reuse, job=job, stop=_NEVER)
        for number in range(points // 200):
            world.at(_LOST_EACH_S * (number + 1), lambda: _lose_one(world))
        began = world.time.now()
        world.drive()
        now, runs = world.time.now(), world.ledger.runs(batch=NAME)
        counted = counted_in_total(runs)
        return Bill(
            verdicts=Counter(str(state.verdict) for state in world.states() if state.verdict),
            rentals=market.rentals,
            left=market.rented,
            usd=market.bill_usd,
            ledger_usd=sum(cost_usd(run, now) for run in runs if run.id in counted),
            hours=(now - began) / 3600,
        )


def _nth(number: int) -> Training:
    return replace(CRASH, seconds=10.0) if number % _CRASHES_EACH == _CRASHES_EACH - 1 else _TRAINING


def _lose_one(world: BatchWorld) -> None:
    market = world.market
    there = [machine for machine in market.slotted if market.is_there(machine)]
    if there:
        market.lose(there[0])
