"""A run with a deadline: stopped in time with its checkpoint, and nothing is paid beyond it."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.fakebox import Loading, Training
from tests.fakes import PRICE
from tests.jobs import train_job
from tests.launcher.faults import launch_killed
from tests.launcher.world import World
from vastrun.launcher.core import Cause, Phase, UserRequest
from vastrun.launcher.core.job import JobSpec, Limits
from vastrun.launcher.decisions import policy

NOW = 1_800_000_000.0
LEFT_S = 600.0
ENDLESS = Training(seconds=90000)


def job(left_s: float = LEFT_S) -> JobSpec:
    """To be done so long after the worlds begin."""
    deadline = datetime.fromtimestamp(NOW + left_s, tz=UTC).isoformat()
    return train_job(limits=Limits(hours=12.0, usd=30.0, deadline=deadline))


@pytest.mark.parametrize("loading_s", [0.0, 200.0])
def test_a_training_is_stopped_with_a_checkpoint_so_that_all_is_over_at_the_deadline(
    tmp_path: Path, loading_s: float
) -> None:
    world = World(tmp_path, training=ENDLESS, spec=job())
    world.market.loading["host-1"] = Loading(seconds=loading_s, layer_s=60.0)
    run = world.launch()
    assert (run.cause, run.phase) == (Cause.TIME_LIMIT, Phase.ENDED), run.detail
    assert "the end" in world.output_store.log
    assert NOW + LEFT_S - 130 <= world.clock.now() <= NOW + LEFT_S
    assert world.market.bill_usd <= LEFT_S / 3600 * PRICE


def test_a_detached_run_ends_itself_at_the_deadline_however_long_its_machine_loaded(tmp_path: Path) -> None:
    world = World(tmp_path, training=ENDLESS, spec=job())
    world.market.loading["host-1"] = Loading(seconds=200.0, layer_s=60.0)
    world.user_requests.at = {NOW + 210.0: UserRequest.DETACH}
    assert world.launch().phase is Phase.TRAIN
    world.pass_time(NOW + LEFT_S - world.clock.now() + 1)
    assert world.rented() == 0
    assert world.market.bill_usd <= LEFT_S / 3600 * PRICE


@pytest.mark.slow
def test_a_machine_that_does_not_obey_is_destroyed_soon_after_the_deadline(tmp_path: Path) -> None:
    world = World(tmp_path, training=Training(seconds=90000, obeys=False), spec=job())
    run = world.launch()
    assert (run.cause, world.rented()) == (Cause.TIME_LIMIT, 0)
    assert world.clock.now() <= NOW + LEFT_S + policy.LIMIT_SLACK_S + 60


def test_a_machine_that_still_loads_at_the_deadline_is_given_back(tmp_path: Path) -> None:
    world = World(tmp_path, spec=job(300.0))
    world.market.loading["host-1"] = Loading(seconds=9000.0, layer_s=60.0)
    run = world.launch()
    assert (run.cause, world.rented()) == (Cause.TIME_LIMIT, 0), run.detail
    assert "before its machine was ready" in run.detail
    assert world.clock.now() <= NOW + 300 + 30


def test_a_run_that_is_resumed_keeps_its_deadline(tmp_path: Path) -> None:
    world = World(tmp_path, training=ENDLESS, spec=job())
    launch_killed(world, "output_store.download_log", "after", nth=3)
    world.pass_time(300)
    run = world.resume()
    assert run.cause is Cause.TIME_LIMIT
    assert NOW + LEFT_S - 130 <= world.clock.now() <= NOW + LEFT_S


def test_a_run_that_is_driven_first_after_its_deadline_rents_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, spec=job())
    world.begin()
    world.pass_time(LEFT_S + 1)
    run = world.resume()
    assert (run.cause, world.market.rentals) == (Cause.TIME_LIMIT, 0)
    assert "is over" in run.detail


def test_a_deadline_further_away_than_the_hours_changes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, spec=job(90 * 86400.0))
    assert world.launch().cause is None
