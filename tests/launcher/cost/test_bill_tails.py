"""The ledger beside bills that end before a machine or minutes after it, over 200 short runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import pytest

from tests.emulators.account import Account
from tests.emulators.billing import Billing, Meter, Rates, recorded_tails
from tests.emulators.clock import Clock
from tests.jobs import train_job
from tests.offers import rtx_4090
from tests.runs import a_run
from tests.slow import slow
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import ExtraRates, Instance, MeasuredRun, Phase, Run, bills, runs
from vastrun.launcher.cost.reconciliation import SETTLEMENT_S, bill_of, reconcile, settled_cost
from vastrun.launcher.decisions.history import MIN_TAILS, speed_history_of
from vastrun.launcher.providers.vast.rows import parse_charge

BEGAN = 1_786_924_800.0
RUNS = 200
ROUNDED_USD = 0.0005
"""By which a charge, which has three decimals, may be below what was billed."""
EXTRAS = ExtraRates(storage_usd_per_hour=0.02)
OFFER = rtx_4090(usd_per_hour=0.42, extras=EXTRAS, bill_tail_s=bills.MAX_TAIL_S)
SPEC = train_job()


@dataclass
class Market:
    """Vast's billing, and a launcher that looks at its machine every few seconds."""

    chance: Random
    clock: Clock
    billing: Billing

    @classmethod
    def of(cls, seed: int) -> Market:
        clock = Clock(0, began=BEGAN)
        billing = Billing(Account(1000.0), clock, lag_s=0.0, tail_s=recorded_tails(seed))
        return cls(Random(seed), clock, billing)

    def ended_run(self, number: int) -> Run:
        """A short run on a machine of its own, as the ledger has it at its end."""
        rented_at, rates = self.clock.now(), Rates(0.4, 0.02, 0.0, 0.0)
        loads_s, life_s = self.chance.uniform(5, 90), self.chance.uniform(20, 400)
        meter = self.billing.open(Meter(number, None, "RTX 4090", rates, rented_at))
        run = a_run(
            id=f"run-{number}",
            spec_json=dump_job(SPEC),
            provider="vast",
            phase=Phase.TRAIN,
            out_dir="/nowhere",
            created_at=rented_at,
            offer=OFFER,
            instance_id=str(number),
            usd_per_hour=OFFER.usd_per_hour,
            rented_at=rented_at,
            meter=runs.Meter(extras=EXTRAS),
        )
        while (age_s := self.clock.now() - rented_at) < life_s:
            if age_s >= loads_s and not meter.gpu_on:
                meter.read(rented_at + loads_s)
                meter.gpu_on = True
            run = bills.seen(run, _row(run, is_idle=not meter.gpu_on), self.clock.now(), self.clock.now())
            self.clock.advance(self.chance.uniform(1, 20))
        ended_at = self.clock.now()
        self.billing.end(meter, ended_at, 0, 0)
        confirmed = replace(run.meter, given_back_at=ended_at)
        return replace(run, phase=Phase.ENDED, released_at=ended_at, ended_at=ended_at, meter=confirmed)

    def billed_usd(self, run: Run) -> float:
        return self.billing.total_usd(int(run.instance_id or 0))

    def charged_usd(self, run: Run) -> float:
        rows = self.billing.charges(BEGAN, self.clock.now(), [])
        return sum(row["amount"] for row in rows if row["source"] == f"instance-{run.instance_id}")

    def settled(self, run: Run) -> Run:
        """The run once its bill has been read."""
        charges = [parse_charge(row) for row in self.billing.charges(BEGAN, self.clock.now(), [])]
        own = [charge for charge in charges if charge.instance_id == run.instance_id]
        reconciled = reconcile(bill_of(run, own, [], self.clock.now(), ""))
        assert reconciled.explained, reconciled
        return replace(run, charged=settled_cost(reconciled))


def _row(run: Run, *, is_idle: bool) -> Instance:
    return Instance(
        id=run.instance_id or "",
        label=run.label,
        state="loading" if is_idle else "running",
        usd_per_hour=run.usd_per_hour,
        rented_at=run.rented_at or 0.0,
        extras=EXTRAS,
        idle=is_idle,
    )


@pytest.mark.parametrize("seed", [1, *slow((2,))])
@pytest.mark.slow
def test_the_ledger_is_never_below_the_bill_and_is_the_bill_once_that_is_settled(seed: int) -> None:
    market = Market.of(seed)
    ended = [market.ended_run(number) for number in range(1, RUNS + 1)]
    now = market.clock.now()
    assert all(bills.max_cost_usd(run, now) >= market.billed_usd(run) for run in ended)
    assert any(bills.cost_usd(run, now) < market.billed_usd(run) for run in ended)  # the count alone

    market.clock.advance(SETTLEMENT_S)
    now = market.clock.now()
    settled = [run for run in map(market.settled, ended) if run.charged is not None]
    unsettled = {run.id for run in ended} - {run.id for run in settled}
    assert all(market.billed_usd(run) < ROUNDED_USD for run in ended if run.id in unsettled)  # it reads 0
    assert len(unsettled) < RUNS / 20
    for run in settled:
        assert bills.cost_usd(run, now) == pytest.approx(market.charged_usd(run), abs=1e-9)
        assert bills.cost_usd(run, now) >= market.billed_usd(run) - 2 * ROUNDED_USD  # one row a day
        assert bills.max_cost_usd(run, now) == bills.held_usd(run, now) == bills.cost_usd(run, now)


def measured(tail_s: float | None, account: str = "41") -> MeasuredRun:
    return MeasuredRun(
        provider="vast",
        host="m1",
        gpu_name="",
        gpus=1,
        gpu_memory_gb=24.0,
        spec_json=dump_job(SPEC),
        account=account,
        tail_s=tail_s,
    )


def learned_s(*measured_runs: MeasuredRun) -> float:
    return speed_history_of(measured_runs, "vast", SPEC).bill_tail_s


def test_enough_settled_bills_of_this_account_show_how_long_they_go_on() -> None:
    known = [measured(20.0), *[measured(5.0)] * (MIN_TAILS - 1)]
    assert learned_s(*known) == 20.0 + bills.WATCHED_S
    assert learned_s(*known[1:], measured(None), measured(90.0, account="42")) == float("inf")
    assert learned_s(measured(None, account="42"), *known) == float("inf")  # the key is another account's now
    assert learned_s(*known, measured(90.0, account="42")) == 20.0 + bills.WATCHED_S


def test_what_is_learned_from_a_hundred_bills_is_long_enough_for_the_next_hundred() -> None:
    market = Market.of(3)
    ended = [market.ended_run(number) for number in range(1, RUNS + 1)]
    market.clock.advance(SETTLEMENT_S)
    tails = [run.charged.tail_s for run in map(market.settled, ended[:100]) if run.charged]
    tail_s = min(bills.MAX_TAIL_S, learned_s(*map(measured, tails)))
    for run in ended[100:]:
        known = replace(run, offer=replace(OFFER, bill_tail_s=tail_s))
        assert bills.max_cost_usd(known, market.clock.now()) >= market.billed_usd(run)
