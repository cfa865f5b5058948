"""What the user asks of a run while it is driven: to stop, to destroy its machine, to let it go on alone."""

import itertools
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakebox import Loading, Training
from tests.launcher.faults import KILL_IN, Fault, Moment, launch_killed
from tests.launcher.run_checks import check_nothing_leaked_and_nothing_lied
from tests.launcher.world import RUN_ID, World
from tests.waiting import LONGEST_S
from vastrun.launcher.core import Cause, Phase, UserRequest, bills
from vastrun.launcher.core.errors import UnreachableError
from vastrun.launcher.flow.services import Services
from vastrun.launcher.guard import InterruptibleClock

ANSWER_S = 2.0
"""Seconds after which a launcher has left, or begun to end the run."""
PLACES: dict[str, tuple[Phase, str, Moment]] = {
    **{phase.value: (phase, *call) for phase, call in KILL_IN.items()},
    "queue": (Phase.BOOT, "provider.connect", "before"),
    "search": (Phase.PLAN, "provider.search", "after"),
    "silent": (Phase.TRAIN, "remote.run", "before"),
}
"""Where a request comes: the phase, and a call in it."""
ENDING = (UserRequest.STOP, UserRequest.DESTROY)
ASKED = [("key", UserRequest.DETACH), *itertools.product(("key", "another process"), ENDING)]
ENDS = (Phase.COLLECT, Phase.DESTROY)
"""Phases in which the run has ended well, whatever is requested."""


@pytest.mark.parametrize(("way", "request_"), ASKED)
@pytest.mark.parametrize("place", PLACES)
def test_a_request_is_answered_wherever_it_comes(
    place: str, request_: UserRequest, way: str, tmp_path: Path
) -> None:
    world, (phase, verb, moment) = World(tmp_path, training=Training(seconds=100)), PLACES[place]
    if place == "queue":
        world.market.loading["host-1"] = Loading(seconds=600.0, queued=True)
        world.market.usd_per_hour = 0.0  # who waits for a turn pays nothing
    asked: list[float] = []

    def ask() -> None:
        asked.append(world.clock.now())
        if way == "key":
            world.user_requests.at = {asked[0]: request_}
        else:
            world.ledger.ask(RUN_ID, request_)
            world.clock.sleep(0.2)  # a ledger is not read at each call
        if place == "silent":
            raise UnreachableError("connection timed out")

    world.plan.acts["asks"] = ask
    world.expect(Fault(verb=verb, nth=3 if place == "silent" else 1, moment=moment, trouble="asks"))

    run = world.launch()

    (asked_at,) = asked
    if request_ is UserRequest.DETACH:
        assert world.clock.now() - asked_at <= ANSWER_S
        assert run.phase is not Phase.ENDED
        assert world.ledger.driver(RUN_ID) is None
        world.user_requests.at = {}
        run = world.resume()
        assert run.cause is None, run.detail
    else:
        assert run.cause is (None if phase in ENDS and run.cause is None else Cause.STOPPED), run.detail
        events = world.ledger.events(RUN_ID)
        soon = [event for event in events if asked_at <= event.at <= asked_at + ANSWER_S]
        assert any("stop" in event.text or "destroyed" in event.text for event in soon)
        assert any(event.phase is Phase.TRAIN for event in events) == (phase in (Phase.TRAIN, *ENDS))
    assert world.market.most_at_once <= 1
    check_nothing_leaked_and_nothing_lied(world, run)


class PatientWorld(World):
    """Its provider is asked as launchers ask theirs, and may be silent for long."""

    def services(self, who: str | None = None) -> Services:
        clock = InterruptibleClock(self.clock.now)
        interrupting, call = clock.interrupting, clock.call
        return replace(super().services(who), interrupting=interrupting, call_interruptibly=call)


@pytest.mark.parametrize("request_", [UserRequest.DETACH, UserRequest.DESTROY])
@pytest.mark.parametrize("verb", ["search", "instances", "machine", "connect", "destroy"])
def test_a_request_leaves_a_provider_that_is_silent(verb: str, request_: UserRequest, tmp_path: Path) -> None:
    world, is_over = PatientWorld(tmp_path), threading.Event()
    leaves = request_ is UserRequest.DETACH or verb not in ("machine", "destroy")  # the machine's end goes on

    def keep_silent() -> None:
        world.user_requests.at = {world.clock.now(): request_}
        if leaves:
            is_over.wait(LONGEST_S)

    world.plan.acts["is silent"] = keep_silent
    world.expect(Fault(verb=f"provider.{verb}", nth=1, moment="before", trouble="is silent"))

    run = world.launch()
    is_over.set()

    assert world.plan.struck
    if request_ is UserRequest.DETACH:
        assert run.phase is not Phase.ENDED
        world.user_requests.at = {}
        run = world.resume()
        assert run.cause is None, run.detail
    else:
        assert run.cause is (Cause.STOPPED if leaves else None), run.detail
    check_nothing_leaked_and_nothing_lied(world, run)


def test_an_order_is_waited_for_whatever_is_requested(tmp_path: Path) -> None:
    world = PatientWorld(tmp_path)

    def answer_late() -> None:
        world.user_requests.at = {world.clock.now(): UserRequest.DETACH}
        threading.Event().wait(0.6)  # longer than a request needs to end a call that may be left

    world.plan.acts["is late"] = answer_late
    world.expect(Fault(verb="provider.rent", nth=1, moment="after", trouble="is late"))

    run = world.launch()

    assert run.instance_id is not None
    assert world.rented() == 1


def test_a_stop_stands_when_the_machine_is_taken_back_at_the_same_time(world: World) -> None:
    world.user_requests.at = {world.clock.now() + 5: UserRequest.STOP}
    world.market.training = Training(stopped=lambda outcome: replace(outcome, stop_cause="preempted"))
    assert world.launch().cause is Cause.STOPPED


def test_a_stop_that_comes_just_before_the_start_trains_nothing(world: World) -> None:
    launch_killed(world, "remote.run", "before", nth=3)
    assert world.ledger.get(RUN_ID).phase is Phase.TRAIN

    world.ledger.ask(RUN_ID, UserRequest.STOP)
    run = world.resume()

    assert run.cause is Cause.STOPPED
    assert "before the training began" in run.detail
    assert world.rented() == 0


def test_the_outputs_of_a_detached_run_that_nobody_collects_are_lost_and_it_costs_no_more_than_its_lease(
    world: World,
) -> None:
    world.user_requests.at = {world.clock.now(): UserRequest.DETACH_ONCE_TRAINING}
    world.launch()

    world.user_requests.at = {}
    world.pass_time(86400)
    assert world.rented() == 0
    run = world.resume()

    assert run.cause is Cause.OUTPUTS_LOST
    assert bills.cost_usd(run, world.clock.now()) <= world.spec.limits.usd * 1.05


@pytest.mark.parametrize("by_s", [7200.0, -7200.0, 600.0])
def test_a_run_whose_launcher_finds_the_clock_set_ends_well_all_the_same(by_s: float, world: World) -> None:
    world.user_requests.at = {world.clock.now(): UserRequest.DETACH_ONCE_TRAINING}
    world.launch()
    world.user_requests.at = {}
    world.wrong_by_s = by_s
    run = world.resume()
    assert run.cause is None, run.detail
    assert world.rented() == 0
