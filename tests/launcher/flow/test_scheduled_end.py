"""The provider's own servers end a machine that outlives all of its limits, and never one that may live."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakebox import Loading, Training
from tests.jobs import train_job
from tests.launcher.faults import Fault, launch_killed
from tests.launcher.terminal import Terminal
from tests.launcher.world import World
from tests.slow import slow
from vastrun.launcher.core import Cause, Driver, Phase
from vastrun.launcher.core.job import Limits
from vastrun.launcher.decisions import policy

HOUR_S = 3600.0
HOSTS = [f"host-{number}" for number in range(1, 8)]
at_any_time_of_the_hour = pytest.mark.parametrize("minute", [0, *slow((23,)), 59])
with_any_clock = pytest.mark.parametrize("wrong_by_s", [*slow((-300.0,), (0.0,)), 300.0])


def world_at(folder: Path, minute: int, wrong_by_s: float = 0.0, hours: float = 0.5) -> World:
    world = World(folder, spec=train_job(limits=Limits(hours=hours, usd_per_hour=10.0)))
    world.clock.sleep(-world.clock.now() % HOUR_S + minute * 60)
    world.wrong_by_s = wrong_by_s
    return world


def last_moment(world: World) -> float:
    run = world.run()
    assert run.offer is not None
    return policy.latest_end(world.spec, run, run.offer) - world.wrong_by_s


@at_any_time_of_the_hour
@with_any_clock
def test_a_machine_that_never_starts_ends_within_two_hours_of_its_last_moment_without_a_launcher(
    tmp_path: Path, minute: int, wrong_by_s: float
) -> None:
    world = world_at(tmp_path, minute, wrong_by_s)
    world.market.loading = dict.fromkeys(HOSTS, Loading(seconds=math.inf))
    launch_killed(world, "provider.connect", "before", nth=2)
    until = last_moment(world)

    world.pass_time(until - world.clock.now())
    assert world.rented() == 1

    world.pass_time(2 * HOUR_S)
    assert world.rented() == 0
    assert world.market.ended_by_schedule == ["1"]


@at_any_time_of_the_hour
@with_any_clock
@pytest.mark.sampled(9)
def test_a_machine_that_trains_to_its_limit_is_not_ended_by_a_schedule(
    tmp_path: Path, minute: int, wrong_by_s: float
) -> None:
    world = world_at(tmp_path, minute, wrong_by_s)
    world.market.training = Training(seconds=1e6, steps=1_000_000)
    run = world.launch()
    assert (run.phase, run.cause) == (Phase.ENDED, Cause.TIME_LIMIT)
    assert world.market.ended_by_schedule == []
    assert world.market.scheduled == {}, "what is over needs no schedule"


def test_the_schedule_moves_forward_once_the_lease_is_armed(tmp_path: Path) -> None:
    world = world_at(tmp_path, 10)
    launch_killed(world, "remote.put", "before")
    assert world.market.scheduled["1"] - world.clock.now() < 2.5 * HOUR_S
    assert world.market.scheduled["1"] >= last_moment(world)


@pytest.mark.parametrize("trouble", ["denied", "error", "unreachable", "busy"])
def test_a_provider_that_schedules_nothing_costs_one_line(world: World, trouble: str) -> None:
    world.expect(Fault(verb="ends_later.schedule_end", nth=1, moment="before", trouble=trouble, times=99))
    run = world.launch()
    assert run.cause is None, run.detail
    told = [event.text for event in world.screen.events if "fake itself will not end" in event.text]
    assert len(told) == 1
    assert world.plan.calls["ends_later.cancel_end"] == 0


def test_a_schedule_that_cannot_be_removed_is_named_and_left_for_reap(world: World) -> None:
    world.expect(Fault(verb="ends_later.cancel_end", nth=1, moment="before", trouble="error"))
    run = world.launch()
    assert run.cause is None, run.detail
    left = "the scheduled end of machine 1 is left for vastrun reap: HTTP 500"
    assert left in [event.text for event in world.screen.events]


def test_a_machine_whose_lease_is_seen_too_late_for_its_schedule_is_given_back(tmp_path: Path) -> None:
    world = world_at(tmp_path, 0)
    fault = Fault(verb="ends_later.schedule_end", nth=2, moment="before", trouble="error", times=99)
    launch_killed(world, "remote.read", "before", besides=(fault,))
    world.pass_time(policy.MAX_BOOT_S + 600)
    world.market.loading = {}
    world.plan.calls["remote.read"] = 1

    run = world.resume()

    assert (run.phase, world.rented()) == (Phase.ENDED, 0)
    assert world.market.ended_by_schedule == []


def test_reap_removes_what_is_left_of_machines_that_are_gone_and_nothing_else(terminal: Terminal) -> None:
    assert terminal.launch().exit_code == 0
    terminal.launch("--detach")
    (detached,) = terminal.ledger.runs(open_only=True)
    assert detached.instance_id == "2"
    for machine_id in ("1", "2", "77"):
        terminal.market.scheduled[machine_id] = terminal.clock.now() + 9 * HOUR_S

    said = terminal.type("reap", "-y")

    assert said.exit_code == 0
    assert "scheduled ends removed, of machines that are gone: 1\n" in said.stderr
    assert set(terminal.market.scheduled) == {"2", "77"}, "one is at work, one is of another program"


def test_an_orphan_that_reap_destroys_leaves_no_schedule(terminal: Terminal) -> None:
    terminal.launch("--detach")
    (run,) = terminal.ledger.runs()
    terminal.ledger.hold(run.id, Driver(who="me", until=terminal.clock.now() + HOUR_S))
    terminal.ledger.save(replace(run, phase=Phase.ENDED, ended_at=terminal.clock.now()), who="me")
    terminal.ledger.release(run.id, "me")
    assert set(terminal.market.scheduled) == {"1"}
    assert terminal.type("reap", "-y").exit_code == 0
    assert (terminal.machines(), terminal.market.scheduled) == (0, {})
