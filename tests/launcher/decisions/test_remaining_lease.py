"""Machines left to their leases: until when they may run, and at what cost."""

from dataclasses import replace

import pytest

from tests.jobs import train_job
from tests.offers import rtx_4090
from tests.runs import a_run
from vastrun.launcher.core import Event, Meter, Phase
from vastrun.launcher.core.job import Limits
from vastrun.launcher.decisions import deadlines
from vastrun.launcher.decisions.policy import BOOT_S

NOW = 1_800_000_000.0
OFFER = rtx_4090(usd_per_hour=3.6)
SPEC = train_job(limits=Limits(hours=1.0))
RUN = a_run(
    spec_json="",
    provider="vast",
    phase=Phase.TRAIN,
    out_dir="",
    created_at=NOW,
    offer=OFFER,
    instance_id="1",
    usd_per_hour=3.6,
    rented_at=NOW,
    meter=Meter(began_at=NOW + 60),
)


@pytest.mark.parametrize(
    ("told", "left"),
    [
        ([], False),
        ([""], False),
        ([deadlines.LEFT_TO_LEASE], True),
        ([deadlines.LEFT_TO_LEASE, "out_of_reach"], True),
        ([deadlines.LEFT_TO_LEASE, ""], False),
    ],
)
def test_a_machine_is_left_while_no_later_drive_has_reached_it(told: list[str], left: bool) -> None:
    events = [Event(run_id=RUN.id, at=NOW, phase=Phase.TRAIN, text="", told=one) for one in told]
    assert deadlines.is_left_to_lease(events) is left


def test_it_costs_its_price_until_its_lease_ends_it() -> None:
    left = deadlines.estimate_remaining_lease(RUN, SPEC, NOW + 1860)
    assert left is not None
    assert left.ends_at == NOW + 60 + 3600
    assert left.usd == pytest.approx(1800 / 3600 * 3.6)


def test_the_lease_of_one_that_may_still_load_counts_from_the_latest_start() -> None:
    left = deadlines.estimate_remaining_lease(replace(RUN, meter=Meter()), SPEC, NOW)
    assert left is not None and left.ends_at == NOW + BOOT_S + 3600


def test_one_whose_lease_has_ended_costs_no_more() -> None:
    left = deadlines.estimate_remaining_lease(RUN, SPEC, NOW + 7200)
    assert left is not None and left.usd == 0.0


@pytest.mark.parametrize("change", [{"phase": Phase.ENDED}, {"instance_id": None}, {"released_at": NOW + 1}])
def test_a_run_without_a_machine_leaves_none(change: dict[str, object]) -> None:
    assert deadlines.estimate_remaining_lease(replace(RUN, **change), SPEC, NOW) is None
