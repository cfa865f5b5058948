"""A counter of traffic in a wrong unit neither stops a run nor counts as money, and is reported once."""

from pathlib import Path

import pytest

from tests.fakebox import Training
from tests.jobs import train_job
from tests.launcher.world import World
from vastrun.launcher.core import ExtraRates, bills
from vastrun.launcher.core.job import Limits


def world_of(tmp_path: Path, *, down_gb: float) -> World:
    world = World(tmp_path, training=Training(seconds=600), spec=train_job(limits=Limits(hours=1.0, usd=3.0)))
    world.market.extras, world.market.down_gb = ExtraRates(down_usd_per_gb=0.5), down_gb
    return world


def faults_told(world: World) -> list[str]:
    return [event.text for event in world.screen.events if "counter of the traffic" in event.text]


def test_a_counter_beyond_the_line_costs_nothing_and_is_told_once(tmp_path: Path) -> None:
    world = world_of(tmp_path, down_gb=6e6)

    run = world.launch()

    assert run.cause is None, run.detail
    cost = bills.cost_of(run, world.clock.now())
    assert 0 < cost.traffic_usd < 0.001
    (told,) = faults_told(world)
    assert told.startswith("the provider's counter of the traffic into the machine reads 6e+06 GB, more than")
    assert told.endswith("; vastrun counts its own transfers until the bill is settled")


def test_traffic_that_only_the_counter_claims_is_charged_and_stops_no_run(tmp_path: Path) -> None:
    world = world_of(tmp_path, down_gb=20.0)

    run = world.launch()

    assert run.cause is None, run.detail
    assert bills.cost_of(run, world.clock.now()).traffic_usd == pytest.approx(10.0)
    assert faults_told(world) == []
