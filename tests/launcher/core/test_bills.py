"""What a run cost, by what was seen of its machine: never less than is billed, and no more than is known."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakebox import Loading, Training
from tests.fakes import PRICE, FakeProvider
from tests.jobs import train_job
from tests.launcher.faults import Plan
from tests.launcher.terminal import Terminal
from tests.launcher.world import World
from tests.offers import rtx_4090
from tests.runs import a_run
from vastrun.launcher import core
from vastrun.launcher.core.job import JobSpec, Limits
from vastrun.launcher.decisions import policy

RENTED = 1_800_000_000.0
EXTRAS = core.ExtraRates(storage_usd_per_hour=0.36, down_usd_per_gb=0.5, up_usd_per_gb=0.25)
RUN = a_run(
    provider="fake",
    phase=core.Phase.TRAIN,
    created_at=RENTED,
    usd_per_hour=3.96,
    rented_at=RENTED,
    meter=core.Meter(extras=EXTRAS),
)
"""A tenth of a cent a second for the GPUs, a tenth of that for storage."""
MACHINE = core.Instance(id="1", label=RUN.label, state="running", usd_per_hour=3.96, rented_at=RENTED)
LOADS = replace(MACHINE, state="loading", idle=True)
STOPPED = replace(MACHINE, state="exited", idle=True)


def seen(*statuses: tuple[float, core.Instance]) -> core.Run:
    """The run after its machine was seen so, each so many seconds after it was rented."""
    run = RUN
    for after_s, machine in statuses:
        run = replace(run, meter=core.bills.metered(run, machine, RENTED + after_s))
    return run


def gone(run: core.Run, after_s: float) -> core.Run:
    """The run after its machine disappeared, so many seconds after it was rented."""
    at = RENTED + after_s
    return replace(run, meter=core.bills.disappeared(run.meter, at), released_at=at)


@pytest.mark.parametrize("up_s", [-60.0, -18_000.0, math.nan, None])
def test_an_uptime_that_cannot_be_takes_nothing_off_the_bill(up_s: float | None) -> None:
    run = seen((5, LOADS), (30, replace(MACHINE, up_s=up_s)), (60, MACHINE))
    assert core.bills.gpu_seconds(run, RENTED + 3600) == 3595


def test_a_machine_that_disappears_while_it_is_listed_as_loading_may_have_run_all_the_time() -> None:
    run = seen((50, LOADS), (100, LOADS))
    assert core.bills.gpu_seconds(gone(run, 110), RENTED + 200) == 110


def test_a_machine_that_disappears_and_is_seen_to_load_again_has_cost_nothing_yet() -> None:
    run = replace(gone(seen((50, LOADS)), 60), released_at=None)
    again = replace(run, meter=core.bills.metered(run, LOADS, RENTED + 100))
    assert core.bills.gpu_seconds(again, RENTED + 100) == 0


def armed(run: core.Run, after_s: float) -> core.Run:
    """The run after its machine answered, so many seconds after it was rented."""
    return replace(run, meter=replace(run.meter, armed_at=RENTED + after_s))


def test_a_machine_that_answers_and_goes_on_being_listed_as_loading_may_have_run_all_the_time() -> None:
    run = armed(seen((50, LOADS), (100, LOADS)), 110)
    later = replace(run, meter=core.bills.metered(run, LOADS, RENTED + 110 + core.bills.LATE_ROW_S + 1))
    assert core.bills.gpu_seconds(later, RENTED + 300) == 300
    ended = replace(run, released_at=RENTED + 130)
    assert core.bills.gpu_seconds(ended, RENTED + 300) == 130


def test_a_machine_that_answers_before_its_row_says_that_it_runs_costs_what_it_ran() -> None:
    run = armed(seen((50, LOADS)), 52)
    run = replace(run, meter=core.bills.metered(run, MACHINE, RENTED + 55))
    assert core.bills.gpu_seconds(run, RENTED + 100) == 50


def test_a_machine_that_ran_and_disappears_costs_what_it_ran() -> None:
    run = seen((50, LOADS), (60, runs_for(5)))
    assert core.bills.gpu_seconds(gone(run, 110), RENTED + 200) == core.bills.gpu_seconds(run, RENTED + 110)


def runs_for(seconds: float | None) -> core.Instance:
    """A machine that runs for so long, says its provider."""
    return replace(MACHINE, up_s=seconds)


@pytest.mark.parametrize(
    ("statuses", "ended_s", "gpu_s"),
    [
        pytest.param([], 100, 100, id="nothing was seen: all of it"),
        pytest.param([(50, LOADS)], 80, 30, id="it loaded, and may have run before it was ended"),
        pytest.param([(50, LOADS)], 200, 150, id="it loaded, and then nobody looked"),
        pytest.param([(900, LOADS)], 901, 1, id="it loaded to its end, whoever looked before"),
        pytest.param([(50, LOADS), (54, runs_for(3))], 100, 49, id="since when it runs, its provider says"),
        pytest.param([(50, LOADS), (54, runs_for(None))], 100, 50, id="since it loaded, when nobody says"),
        pytest.param([(50, LOADS), (54, runs_for(0))], 100, 46, id="no later than it was seen"),
        pytest.param([(50, LOADS), (54, runs_for(900))], 100, 50, id="no earlier than it was seen to load"),
        pytest.param([(50, LOADS), (154, runs_for(1))], 200, 150, id="nobody looked: its word is not enough"),
        pytest.param(
            [(4, runs_for(4)), (90, runs_for(1))], 100, 100, id="the word that changes is not heard"
        ),
        pytest.param([(4, MACHINE), (50, STOPPED), (90, STOPPED)], 100, 50, id="until it was seen stopped"),
        pytest.param(
            [(4, MACHINE), (50, STOPPED), (150, STOPPED)], 160, 150, id="it may have run in between"
        ),
        pytest.param([(4, LOADS), (10, STOPPED)], 12, 6, id="it ran between two looks"),
        pytest.param([(4, MACHINE), (50, STOPPED), (60, MACHINE)], 100, 100, id="a word that was wrong"),
        pytest.param(
            [(4, MACHINE), (600, LOADS), (3600, LOADS)], 3600, 3600, id="one that ran is charged as it loads"
        ),
    ],
)
def test_gpus_are_charged_unless_they_were_seen_to_be_free(
    statuses: list[tuple[float, core.Instance]], ended_s: float, gpu_s: float
) -> None:
    run = replace(seen(*statuses), released_at=RENTED + ended_s)
    assert core.bills.gpu_seconds(run, RENTED + 1e6) == pytest.approx(gpu_s)
    cost = core.bills.cost_of(run, RENTED + 1e6)
    assert cost.gpu_usd == pytest.approx(gpu_s * 0.001)
    assert cost.storage_usd == pytest.approx(ended_s * 0.0001)
    assert cost.traffic_usd == 0


def test_gpus_that_loaded_a_moment_ago_are_free_as_long_as_the_machine_is_held() -> None:
    assert core.bills.gpu_seconds(seen((50, LOADS)), RENTED + 80) == 0


@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_a_price_that_changes_counts_from_then_on_and_what_was_charged_before_stays(
    factor: float, tmp_path: Path
) -> None:
    terminal = Terminal(tmp_path, Training(seconds=120))
    terminal.at(60, lambda: terminal.market.reprice(factor))

    end = terminal.launch()

    assert end.exit_code == 0, end.output
    assert "/h now, $3.600/h before" in end.stderr
    run, bill_usd = terminal.ledger.runs()[0], terminal.market.bill_usd
    assert run.usd_per_hour == pytest.approx(PRICE * factor)
    late_usd = core.bills.WATCHED_S / 3600 * abs(run.usd_per_hour - PRICE)
    assert bill_usd <= core.bills.cost_usd(run, terminal.clock.now()) <= bill_usd * 1.01 + late_usd


@pytest.mark.parametrize(
    ("usd_per_hour", "usd"),
    [
        pytest.param(7.56, 300 * 0.0021, id="a higher price counts from the rent"),
        pytest.param(2.16, 200 * 0.0011 + 100 * 0.0006, id="a lower one from when it was heard"),
    ],
)
def test_a_machine_that_has_another_price_than_was_offered_is_charged_no_less_than_is_billed(
    usd_per_hour: float, usd: float
) -> None:
    first_row = replace(MACHINE, usd_per_hour=usd_per_hour, extras=EXTRAS)
    run = core.bills.seen(RUN, first_row, RENTED + 199, RENTED + 200)
    assert core.bills.cost_usd(replace(run, released_at=RENTED + 300), RENTED + 1e6) == pytest.approx(usd)


TAILED = replace(RUN, offer=rtx_4090(bill_tail_s=300.0))
SECOND = core.Rental(instance_id="2", usd_per_hour=1.8, rented_at=RENTED)


@pytest.mark.parametrize(
    ("run", "usd"),
    [
        pytest.param(TAILED, 300 * 0.0011, id="it was never seen: it may run"),
        pytest.param(
            replace(TAILED, meter=seen((50, LOADS), (90, LOADS)).meter),
            300 * 0.0001,
            id="only its disk counts",
        ),
        pytest.param(replace(TAILED, released_at=RENTED + 60), 300 * 0.0011, id="it has ended"),
        pytest.param(replace(TAILED, charged=core.Settled(gpu_usd=0.05)), 0.0, id="its bill is settled"),
        pytest.param(RUN, 0.0, id="its provider charges none after its end"),
        pytest.param(replace(TAILED, rented_at=None), 0.0, id="it was not rented"),
        pytest.param(replace(TAILED, rentals=(SECOND,)), 300 * 0.0016, id="a further machine has one, too"),
    ],
)
def test_a_bill_may_go_on_after_the_end_until_it_is_settled(run: core.Run, usd: float) -> None:
    now = RENTED + 100
    assert core.bills.max_cost_usd(run, now) - core.bills.cost_usd(run, now) == pytest.approx(usd)


def test_what_may_still_be_charged_is_held_of_the_budgets_until_the_bill_is_settled() -> None:
    now, ended = RENTED + 100, replace(TAILED, phase=core.Phase.ENDED, released_at=RENTED + 100)
    assert core.bills.held_usd(ended, now) == pytest.approx(400 * 0.0011)
    assert core.bills.held_usd(replace(ended, charged=core.Settled(gpu_usd=0.2)), now) == 0.2
    assert core.bills.held_usd(replace(TAILED, reserved_usd=0.3), now) == pytest.approx(400 * 0.0011)
    assert core.bills.held_usd(replace(TAILED, reserved_usd=0.5), now) == 0.5


class SlowMarket(FakeProvider):
    """Charges GPUs from when a machine runs; what it says of one arrives seconds after it was true."""

    answer_s = 3.0
    gpu_usd = 0.0

    def rent(self, order: core.RentalOrder) -> core.Instance:
        return replace(super().rent(order), state="loading", idle=True)

    def instances(self) -> Sequence[core.Instance]:
        listed = [self._row(row) for row in super().instances()]
        self.clock.sleep(self.answer_s)
        return listed

    def _row(self, row: core.Instance) -> core.Instance:
        box = self._boxes[row.id]
        up_s = self.clock.now() - box.up_at
        return replace(row, idle=not box.is_up, up_s=up_s if box.is_up else None)

    def _end(self, instance_id: str, at: float) -> None:
        if box := self._boxes.get(instance_id):
            self.gpu_usd += max(0.0, at - box.up_at) / 3600 * box.instance.usd_per_hour
        super()._end(instance_id, at)


def test_the_cost_is_not_below_the_bill_when_the_provider_answers_late(world: World) -> None:
    market = SlowMarket(world.clock)
    market.loading["host-1"] = Loading(seconds=20)
    world.market, world.plan = market, Plan(market)
    run = world.launch()
    assert run.cause is None
    assert 0 < market.gpu_usd <= core.bills.cost_of(run, world.clock.now()).gpu_usd
    assert core.bills.cost_of(run, world.clock.now()).gpu_usd < market.bill_usd


def test_traffic_is_charged_both_ways_as_it_was_last_counted() -> None:
    run = seen((5, replace(MACHINE, down_gb=3.0, up_gb=1.0)), (9, replace(MACHINE, down_gb=4.0, up_gb=0.0)))
    assert core.bills.cost_of(run, RENTED).traffic_usd == pytest.approx(4.0 * 0.5 + 1.0 * 0.25)


def offer(extras: core.ExtraRates) -> core.Offer:
    return rtx_4090(usd_per_hour=3.96, extras=extras)


def job(usd: float) -> JobSpec:
    return train_job(limits=Limits(hours=10, usd=usd))


def test_the_lease_leaves_money_for_loading_and_for_the_usual_traffic() -> None:
    spec, dear = job(20.0), offer(EXTRAS)
    lease = policy.lease_of(spec, dear)
    besides_usd = policy.BOOT_S * 0.0001 + policy.DOWN_GB * 0.5 + policy.UP_GB * 0.25
    assert lease.life_cause is core.Cause.MONEY_LIMIT
    assert lease.life_s * 0.0011 + besides_usd == pytest.approx(20.0)
    assert policy.worst_case_usd(spec, dear) == pytest.approx(20.0)


def test_most_of_a_small_sum_is_for_training() -> None:
    assert policy.lease_of(job(0.5), offer(EXTRAS)).life_s * 0.0011 == pytest.approx(0.4)


def test_traffic_beyond_the_usual_shortens_the_training() -> None:
    spec = job(20.0)
    lease = policy.lease_of(spec, offer(EXTRAS))
    run = replace(RUN, offer=offer(EXTRAS))
    flooded = replace(run, meter=replace(run.meter, down_gb=16.0))
    left_s = lease.life_s - 12.0 / 0.0011 + lease.grace_s
    assert not policy.is_money_spent(spec, run, lease.grace_s + 10)
    assert not policy.is_money_spent(spec, flooded, left_s + 1)
    assert policy.is_money_spent(spec, flooded, left_s - 1)


@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_gpus_that_ran_unseen_before_a_price_changed_are_charged_the_higher_of_the_two(factor: float) -> None:
    """Between two looks it began to run, and its price changed."""
    run = replace(RUN, meter=core.bills.metered(RUN, LOADS, RENTED + 1))
    changed = replace(MACHINE, usd_per_hour=3.96 * factor, extras=EXTRAS, up_s=30.0)
    run = core.bills.seen(run, changed, RENTED + 40, RENTED + 41)
    cost = core.bills.cost_of(run, RENTED + 41)
    gpu_usd_per_s = (max(1.0, factor) * 3.96 - 0.36) / 3600
    assert cost.gpu_usd == pytest.approx(31 * gpu_usd_per_s, rel=0.03)
