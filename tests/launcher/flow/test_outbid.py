"""A machine that was outbid is kept by a higher bid where that is cheaper, and its run goes on there."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.jobs import train_job
from tests.launcher.faults import Fault, Killed
from tests.launcher.run_checks import check_nothing_leaked_and_nothing_lied
from tests.launcher.world import World
from vastrun.launcher.core import Cause, Phase, UserRequest
from vastrun.launcher.core.job import JobSpec, Limits
from vastrun.launcher.decisions.bids import MAX_RAISES, RESTART_WAIT_S


def outbid(folder: Path, spec: JobSpec | None = None) -> World:
    """A world whose machine is outbid at step 5 of 10."""
    world = World(folder, spec=spec)
    world.market.outbid_at_step = 5
    return world


def test_the_run_goes_on_where_it_was_under_a_lease_of_the_new_price(tmp_path: Path) -> None:
    world = outbid(tmp_path)
    run = world.launch()
    check_nothing_leaked_and_nothing_lied(world, run)
    assert (run.cause, world.market.rentals) == (None, 1), run.detail
    assert run.offer is not None and run.offer.bid_usd_per_hour == pytest.approx(3.6 * 1.1 * 1.2, abs=1e-4)
    told = [event.text for event in world.screen.events]
    assert (
        "outbid: its bid is raised to $4.75/h, $3.60 before: another machine is expected to cost more" in told
    )
    assert "the training continues on the same machine" in told


@pytest.mark.parametrize(
    "limits",
    [Limits(hours=1.0, usd=3.0, usd_per_hour=4.0), Limits(hours=0.04, usd=3.0), Limits(hours=1.0, usd=0.25)],
    ids=["price", "time", "money"],
)
def test_no_limit_of_the_job_is_passed_for_it(limits: Limits, tmp_path: Path) -> None:
    run = outbid(tmp_path, replace(train_job(), limits=limits)).launch()
    assert (run.cause, run.phase, run.usd_per_hour) == (Cause.PREEMPTED, Phase.ENDED, 3.6)


def test_a_machine_that_does_not_come_back_is_given_back_in_time(tmp_path: Path) -> None:
    world = outbid(tmp_path)
    world.market.comes_back = False
    began = world.clock.now()
    run = world.launch()
    assert (run.cause, world.rented()) == (Cause.PREEMPTED, 0)
    assert RESTART_WAIT_S <= world.clock.now() - began <= RESTART_WAIT_S + 120


def test_a_bid_that_is_refused_ends_the_run_as_before(tmp_path: Path) -> None:
    world = outbid(tmp_path)
    world.market.refuses_bids = True
    run = world.launch()
    assert (run.cause, world.rented()) == (Cause.PREEMPTED, 0)
    assert "the bid was not raised: HTTP 400" in [event.text for event in world.screen.events]


def test_who_asks_for_a_stop_pays_no_higher_bid(tmp_path: Path) -> None:
    world = outbid(tmp_path)
    world.market.comes_back = False
    world.user_requests.at = {world.clock.now() + 60: UserRequest.STOP}
    began = world.clock.now()
    run = world.launch()
    assert (run.phase, world.rented()) == (Phase.ENDED, 0)
    assert world.clock.now() < began + RESTART_WAIT_S


def test_a_machine_that_is_outbid_again_and_again_is_left(tmp_path: Path) -> None:
    world = outbid(tmp_path, replace(train_job(), limits=Limits(hours=1.0, usd=300.0)))
    world.market.outbid_again = True
    run = world.launch()
    assert run.cause is Cause.PREEMPTED
    told = [event.text for event in world.screen.events]
    assert sum(text.startswith("outbid: its bid is raised") for text in told) == MAX_RAISES


@pytest.mark.parametrize(
    ("verb", "nth", "moment"),
    [("bids.change_bid", 1, "before"), ("bids.change_bid", 1, "after"), ("packer.secrets", 3, "before")],
)
def test_a_launcher_killed_meanwhile_is_followed_by_one_that_goes_on(
    verb: str, nth: int, moment: str, tmp_path: Path
) -> None:
    world = outbid(tmp_path)
    world.expect(Fault(verb=verb, nth=nth, moment=moment, trouble="killed"))  # type: ignore[arg-type]
    with pytest.raises(Killed):
        world.launch()
    run = world.resume()
    check_nothing_leaked_and_nothing_lied(world, run)
    assert (run.cause, world.market.rentals) == (None, 1), run.detail


def test_a_machine_whose_launcher_died_after_the_raise_costs_no_more_than_the_job_may(tmp_path: Path) -> None:
    world = outbid(tmp_path)
    world.expect(Fault(verb="bids.change_bid", nth=1, moment="after", trouble="killed"))
    with pytest.raises(Killed):
        world.launch()
    world.pass_time(7200.0)
    assert world.rented() == 0
    assert world.market.bill_usd <= 3.0
