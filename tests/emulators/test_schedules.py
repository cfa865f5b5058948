"""Scheduled requests of the emulated Vast are sent as one user saw the real ones to be."""

import pytest

from tests.emulators.asking import ask, rent
from tests.emulators.clock import Clock
from tests.emulators.instance import Pace
from tests.emulators.machines import Machine
from tests.emulators.vast import VastEmulator

HOUR_S = 3600.0


@pytest.fixture
def vast() -> VastEmulator:
    vast = VastEmulator([Machine(id=41000)], clock=Clock(0.0), pace=Pace(created_s=1e9), rate_limits=False)
    with vast:
        vast.advance(-vast.clock.now() % HOUR_S + 17 * 60)
        yield vast


def schedule(vast: VastEmulator, instance_id: int, minutes: float) -> tuple[int, dict[str, int]]:
    """Destroy it so many minutes from now."""
    start = vast.clock.now() + minutes * 60
    body = {
        "start_time": start,
        "end_time": start + 2 * HOUR_S,
        "api_endpoint": f"/api/v0/instances/{instance_id}/",
        "request_method": "DELETE",
        "request_body": {},
        "frequency": "HOURLY",
        "instance_id": instance_id,
    }
    return ask(vast, "POST", "/api/v0/commands/schedule_job/", body)


@pytest.mark.parametrize(
    ("minutes", "sent_after"),
    # It is 17 past: an hour that has begun is not made up for, and one of 13:22 is sent at 13:00.
    [(1, 43), (42, 43), (43, 43), (48, 43), (102, 43), (103, 103), (150, 103)],
)
def test_a_request_is_sent_at_the_first_full_hour_from_that_of_its_start(
    vast: VastEmulator, minutes: float, sent_after: float
) -> None:
    instance_id = rent(vast)[1]["new_contract"]
    assert schedule(vast, instance_id, minutes)[0] == 200
    vast.advance(sent_after * 60 - 1)
    assert len(vast.instances) == 1
    vast.advance(2)
    assert (len(vast.instances), vast.schedules.destroyed) == (0, [instance_id])


@pytest.mark.parametrize(
    ("fault", "left_after_hours"), [("schedule_late", [1, 0]), ("schedule_never", [1, 1])]
)
def test_request_may_come_late_or_never(vast: VastEmulator, fault: str, left_after_hours: list[int]) -> None:
    vast.faults.add(fault)
    schedule(vast, rent(vast)[1]["new_contract"], 48)
    left = []
    for _ in left_after_hours:
        vast.advance(HOUR_S)
        left.append(len(vast.instances))
    assert left == left_after_hours
