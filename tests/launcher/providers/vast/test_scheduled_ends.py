"""Scheduled ends on Vast: never in an hour in which the machine may live, one for each machine, and moved."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.emulators.clock import Clock
from tests.emulators.instance import Pace
from tests.emulators.machines import Machine
from tests.emulators.vast import VastEmulator
from tests.fakes import FakeClock
from tests.launcher.providers.vast.rentals import open_market, rent
from vastrun.launcher.core import Instance
from vastrun.launcher.core.errors import AuthError
from vastrun.launcher.providers.vast import VastProvider
from vastrun.launcher.providers.vast.api import VastApi
from vastrun.launcher.providers.vast.rental import ScheduledEnds, end_hour

HOUR_S = 3600.0


@pytest.fixture
def vast() -> Iterator[VastEmulator]:
    """Its time stands still, but for what a test lets pass; a machine loads for ever."""
    machines = [Machine(id=41000 + number) for number in range(3)]
    with VastEmulator(machines, clock=Clock(0.0), pace=Pace(created_s=1e9), rate_limits=False) as vast:
        yield vast


@pytest.fixture
def ends(provider: VastProvider) -> ScheduledEnds:
    return ScheduledEnds(provider.api)


class ClockOf(FakeClock):
    """One that differs from Vast's."""

    def __init__(self, vast: VastEmulator, by_s: float) -> None:
        self._vast, self._by_s = vast, by_s

    def now(self) -> float:
        return self._vast.clock.now() + self._by_s

    def sleep(self, seconds: float) -> None:
        """Calls are not limited here."""


def left(vast: VastEmulator, machine: Instance, hours: float) -> bool:
    """Whether the machine is there after so many hours."""
    vast.advance(hours * HOUR_S)
    return any(one.id == int(machine.id) for one in vast.instances)


@pytest.mark.parametrize("wrong_by_s", [-7200.0, -300.0, 0.0, 300.0, 7200.0])
@pytest.mark.parametrize("minute", [*range(0, 60, 7), 59.999])
def test_no_machine_is_ended_before_its_last_moment_at_any_minute_of_the_hour_by_any_clock(
    vast: VastEmulator, tmp_path: Path, minute: float, wrong_by_s: float
) -> None:
    provider = open_market(vast, tmp_path, ClockOf(vast, wrong_by_s))
    ends, machine = ScheduledEnds(provider.api), rent(provider)
    vast.advance(-vast.clock.now() % HOUR_S + minute * 60)
    ends.schedule_end(machine.id, 1.5 * HOUR_S)
    assert left(vast, machine, 1.5 + 5 / 60), "clocks may differ by five minutes"
    assert not left(vast, machine, 2 - 5 / 60)


def test_another_schedule_moves_one(vast: VastEmulator, provider: VastProvider, ends: ScheduledEnds) -> None:
    machine, now = rent(provider), vast.clock.now()
    ends.schedule_end(machine.id, 0.0)
    ends.schedule_end(machine.id, 5 * HOUR_S)
    assert [(one.instance_id, one.at) for one in ends.scheduled_ends()] == [
        (machine.id, end_hour(now + 5 * HOUR_S) + HOUR_S / 2)
    ]
    assert left(vast, machine, 5)
    assert not left(vast, machine, 2)


def test_what_is_cancelled_is_this_machine_s_alone(
    vast: VastEmulator, provider: VastProvider, ends: ScheduledEnds
) -> None:
    first, second = rent(provider), rent(provider)
    for machine in (first, second):
        ends.schedule_end(machine.id, 0.0)
    ends.cancel_end(first.id)
    assert [one.instance_id for one in ends.scheduled_ends()] == [second.id]
    ends.cancel_end(first.id)


@pytest.mark.parametrize("fault", ["no_answer_done", "bad_gateway_done", "no_answer", "server_error"])
def test_a_schedule_whose_answer_is_lost_is_made_once(
    vast: VastEmulator, provider: VastProvider, ends: ScheduledEnds, fault: str
) -> None:
    machine = rent(provider)
    vast.faults.add(fault, endpoint="add_schedule")
    ends.schedule_end(machine.id, 0.0)
    assert len(ends.scheduled_ends()) == 1


def test_a_key_without_a_right_fails(vast: VastEmulator, provider: VastProvider, ends: ScheduledEnds) -> None:
    machine = rent(provider)
    vast.faults.add("schedule_denied", times=2)
    with pytest.raises(AuthError, match=r"api\.commands\.schedule_job.*have Vast itself end a machine later"):
        ends.schedule_end(machine.id, 0.0)
    with pytest.raises(AuthError):
        ends.scheduled_ends()


@pytest.mark.parametrize(
    "row",
    [
        None,
        "DELETE",
        {},
        {"id": 1, "request_method": "DELETE", "api_endpoint": "/api/v0/instances/7/../8/"},
        {"id": 1, "request_method": "PUT", "api_endpoint": "/api/v0/instances/7/"},
        {"id": 1, "request_method": "DELETE", "api_endpoint": ["/api/v0/instances/7/"]},
        {"id": -1, "request_method": "DELETE", "api_endpoint": "/api/v0/instances/7/"},
        {"id": 1, "request_method": "DELETE", "api_endpoint": "/api/v0/instances/" + "7" * 5000},
    ],
)
def test_a_row_that_destroys_no_machine_or_makes_no_sense_hides_no_other(
    row: object,
) -> None:
    good = {"id": 2, "request_method": "DELETE", "api_endpoint": "/api/v0/instances/7/", "start_time": "x"}
    api = cast("VastApi", SimpleNamespace(repeat=lambda *_: [row, good]))
    read = ScheduledEnds(api).scheduled_ends()
    assert [(one.id, one.instance_id, one.at) for one in read] == [("2", "7", 0.0)]
