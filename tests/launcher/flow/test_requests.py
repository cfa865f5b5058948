"""What the user asks of a run while it is driven: to stop, to destroy its machine, to let it go on alone."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakebox import Training
from tests.launcher.faults import Fault, Killed
from tests.launcher.world import RUN_ID, World
from vastrun.launcher.core import Cause, Phase, UserRequest


def test_a_stop_saves_collects_and_destroys(world: World) -> None:
    world.user_requests.at = {world.clock.now() + 5: UserRequest.STOP}
    run = world.launch()
    assert run.cause is Cause.STOPPED
    assert "the end" in world.output_store.log
    assert world.rented() == 0


def test_a_stop_stands_when_the_machine_is_taken_back_at_the_same_time(world: World) -> None:
    world.user_requests.at = {world.clock.now() + 5: UserRequest.STOP}
    world.market.training = Training(stopped=lambda outcome: replace(outcome, stop_cause="preempted"))
    assert world.launch().cause is Cause.STOPPED


def test_a_stop_asked_from_another_terminal_is_heard(world: World) -> None:
    world.expect(Fault(verb="output_store.download_log", nth=2, moment="after", trouble="killed"))
    with pytest.raises(Killed):
        world.launch()
    world.ledger.ask(RUN_ID, UserRequest.STOP)
    run = world.resume()
    assert run.cause is Cause.STOPPED


def test_a_stop_that_comes_just_before_the_start_trains_nothing(world: World) -> None:
    world.expect(Fault(verb="remote.run", nth=3, moment="before", trouble="killed"))
    with pytest.raises(Killed):
        world.launch()
    assert world.ledger.get(RUN_ID).phase is Phase.TRAIN

    world.ledger.ask(RUN_ID, UserRequest.STOP)
    run = world.resume()

    assert run.cause is Cause.STOPPED
    assert "before the training began" in run.detail
    assert world.rented() == 0


def test_destroy_now_does_not_wait_for_outputs(tmp_path: Path) -> None:
    world = World(tmp_path, training=Training(seconds=3000))
    world.user_requests.at = {world.clock.now() + 5: UserRequest.DESTROY}
    run = world.launch()
    assert (run.cause, run.detail) == (Cause.STOPPED, "destroyed immediately, as requested")
    assert world.output_store.home == {}
    assert world.rented() == 0


def test_a_stop_before_anything_was_rented_rents_nothing(world: World) -> None:
    world.user_requests.at = {world.clock.now(): UserRequest.STOP}
    run = world.launch()
    assert (run.phase, run.cause) == (Phase.ENDED, Cause.STOPPED)
    assert world.market.most_at_once == 0
    assert run.rented_at is None


def test_a_detached_run_goes_on_alone_and_is_finished_by_whoever_comes_next(world: World) -> None:
    world.user_requests.at = {world.clock.now(): UserRequest.DETACH}

    left = world.launch()
    assert left.phase is Phase.TRAIN
    assert world.rented() == 1
    assert world.ledger.driver(RUN_ID) is None

    world.user_requests.at = {}
    world.pass_time(600)
    run = world.resume()
    assert run.cause is None, run.detail


@pytest.mark.parametrize("by_s", [7200.0, -7200.0, 600.0])
def test_a_run_whose_launcher_finds_the_clock_set_ends_well_all_the_same(by_s: float, world: World) -> None:
    world.user_requests.at = {world.clock.now(): UserRequest.DETACH}
    world.launch()
    world.user_requests.at = {}
    world.wrong_by_s = by_s
    run = world.resume()
    assert run.cause is None, run.detail
    assert world.rented() == 0
