"""A run costs and lasts no more than its job allows, and is charged as its provider charges."""

from pathlib import Path

import pytest

from tests.fakebox import Training
from tests.fakes import PRICE
from tests.jobs import train_job
from tests.launcher.faults import Fault, launch_killed
from tests.launcher.world import World
from vastrun.launcher.core import Cause, ExtraRates, UserRequest, bills
from vastrun.launcher.core.job import Limits
from vastrun.launcher.decisions import policy


@pytest.mark.parametrize("late_s", [1.0, 4.0, 16.0, 48.0, 600.0])
def test_a_machine_that_its_lease_ended_unseen_is_charged_until_then_by_our_own_clock(
    late_s: float, tmp_path: Path
) -> None:
    spec = train_job(limits=Limits(hours=0.1, usd=3.0))
    world = World(tmp_path, training=Training(seconds=90000), spec=spec)
    world.user_requests.at = {world.clock.now(): UserRequest.DETACH}
    began = world.clock.now()
    world.launch()
    world.user_requests.at = {}
    world.pass_time(began + 360 + late_s - world.clock.now())

    run = world.resume()

    assert world.rented() == 0
    above_s = (bills.cost_usd(run, world.clock.now()) - world.market.bill_usd) / PRICE * 3600
    assert 0 <= above_s <= 5


@pytest.mark.parametrize(
    ("limits", "cause", "most_usd"),
    [
        (Limits(hours=0.1, usd=3.0), Cause.TIME_LIMIT, 0.36),
        (Limits(hours=5.0, usd=0.5), Cause.MONEY_LIMIT, 0.5),
    ],
)
def test_a_limit_stops_the_training_with_a_checkpoint_and_is_named(
    limits: Limits, cause: Cause, most_usd: float, tmp_path: Path
) -> None:
    world = World(tmp_path, training=Training(seconds=90000), spec=train_job(limits=limits))
    run = world.launch()
    assert run.cause is cause
    assert "the end" in world.output_store.log
    assert world.market.bill_usd <= most_usd


def test_money_that_traffic_used_up_stops_the_training_with_a_checkpoint(tmp_path: Path) -> None:
    spec = train_job(limits=Limits(hours=5.0, usd=3.0))
    training = Training(seconds=90000, received_mb=2048)
    world = World(tmp_path, training=training, spec=spec)
    world.market.extras, world.market.down_gb = ExtraRates(down_usd_per_gb=0.5), 2.0

    run = world.launch()

    assert run.cause is Cause.MONEY_LIMIT
    assert "the end" in world.output_store.log
    assert 1.7 < world.market.bill_usd <= 2.0
    assert bills.cost_usd(run, world.clock.now()) == pytest.approx(world.market.bill_usd + 1.0, rel=0.01)


@pytest.mark.parametrize("verb", ["remote.run", "remote.read", "remote.put", "output_store.collect"])
def test_a_machine_that_vanishes_is_charged_until_it_was_first_missed(verb: str, world: World) -> None:
    is_collecting = verb == "output_store.collect"
    world.expect(Fault(verb=verb, nth=1, moment="before", trouble="vanish"))
    run = world.launch()
    assert run.cause is (Cause.OUTPUTS_LOST if is_collecting else Cause.LOST)
    above_s = (bills.cost_usd(run, world.clock.now()) - world.market.bill_usd) / PRICE * 3600
    assert 0 <= above_s <= 5


@pytest.mark.slow
def test_a_box_that_neither_answers_nor_ends_itself_is_given_back_after_its_limit(tmp_path: Path) -> None:
    spec = train_job(limits=Limits(hours=1.0, usd=100.0))
    world = World(tmp_path, training=Training(seconds=90000), spec=spec)
    world.market.stranded_from = world.clock.now() + 600

    run = world.launch()

    assert (run.cause, run.detail) == (
        Cause.TIME_LIMIT,
        "past the end of its lease, which did not destroy it",
    )
    assert world.rented() == 0
    assert world.market.bill_usd <= (3600 + policy.LIMIT_SLACK_S + 30) * PRICE / 3600


def test_a_paid_machine_without_any_limit_on_money_is_not_rented(tmp_path: Path) -> None:
    world = World(tmp_path, spec=train_job(limits=Limits(hours=1.0)))
    run = world.launch()
    assert run.cause is Cause.USER_ERROR
    assert "spending limit" in run.detail
    assert world.market.most_at_once == 0


def test_an_offer_above_the_hourly_price_is_not_taken(tmp_path: Path) -> None:
    world = World(tmp_path, spec=train_job(limits=Limits(usd_per_hour=1.0)))
    run = world.launch()
    assert run.cause is Cause.NO_OFFER


def test_a_launcher_killed_between_destroy_and_proof_does_not_make_the_run_dearer(tmp_path: Path) -> None:
    calm = World(tmp_path / "calm")
    calm.launch()
    proofs = 2

    world = World(tmp_path / "killed")
    nth = calm.plan.calls["provider.instances"] - proofs + 1
    launch_killed(world, "provider.instances", "before", nth=nth)
    assert world.rented() == 0
    world.pass_time(3600)
    run = world.resume()

    assert bills.cost_usd(run, world.clock.now()) == pytest.approx(world.market.bill_usd, rel=0.01)


def world_of(tmp_path: Path, *, down_gb: float) -> World:
    world = World(tmp_path, training=Training(seconds=600), spec=train_job(limits=Limits(hours=1.0, usd=3.0)))
    world.market.extras, world.market.down_gb = ExtraRates(down_usd_per_gb=0.5), down_gb
    return world


def faults_told(world: World) -> list[str]:
    return [event.text for event in world.screen.events if "counter of the traffic" in event.text]


@pytest.mark.slow
def test_a_counter_beyond_the_line_costs_nothing_and_is_told_once(tmp_path: Path) -> None:
    world = world_of(tmp_path, down_gb=6e6)
    run = world.launch()
    assert run.cause is None, run.detail
    cost = bills.cost_of(run, world.clock.now())
    assert 0 < cost.traffic_usd < 0.001
    (told,) = faults_told(world)
    assert told.startswith("the provider's counter of the traffic into the machine reads 6e+06 GB, more than")
    assert told.endswith("; vastrun counts its own transfers until the bill is settled")


@pytest.mark.slow
def test_traffic_that_only_the_counter_claims_is_charged_and_stops_no_run(tmp_path: Path) -> None:
    world = world_of(tmp_path, down_gb=20.0)
    run = world.launch()
    assert run.cause is None, run.detail
    assert bills.cost_of(run, world.clock.now()).traffic_usd == pytest.approx(10.0)
    assert faults_told(world) == []
