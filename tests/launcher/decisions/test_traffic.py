"""A provider's counter of traffic counts while it can be right; else vastrun's own transfers do."""

from dataclasses import replace

import pytest

from tests.launcher.decisions.test_policy import RENTED
from vastrun.launcher.core import BoxStatus, ExtraRates, Instance, Meter
from vastrun.launcher.decisions.offer_check import GB, TrafficMeasure, confirmed, counted, counter_fault

MACHINE = Instance(
    id="7",
    label="l",
    state="running",
    usd_per_hour=0.4,
    rented_at=0.0,
    extras=ExtraRates(down_usd_per_gb=0.01, up_usd_per_gb=0.01),
    down_mbps=800.0,
    up_mbps=80.0,
)
"""Its line carries 0.1 GB a second, and a tenth of that out of it."""


@pytest.mark.parametrize(
    ("down_gb", "up_gb", "rented_s", "fault"),
    [
        (0.0, 0.0, 0.0, ""),
        # For the seconds since the rent and ten more, at twice its speed.
        (2.0, 0.2, 0.0, ""),
        (2.1, 0.0, 0.0, "into the machine reads 2.1 GB, more than the 2 GB that its line can have"),
        (0.0, 0.21, 0.0, "out of the machine reads 0.21 GB, more than the 0.2 GB that its line"),
        (720.0, 0.0, 3590.0, ""),
        (721.0, 0.0, 3590.0, "more than the 720 GB that its line can have carried since the rent"),
    ],
)
def test_a_counter_above_what_the_line_carries_is_a_fault(
    down_gb: float, up_gb: float, rented_s: float, fault: str
) -> None:
    found = counter_fault(replace(MACHINE, down_gb=down_gb, up_gb=up_gb), TrafficMeasure(), rented_s)
    assert fault in found
    assert bool(found) is bool(fault)


def test_a_line_without_a_listed_speed_counts_as_a_fast_one() -> None:
    unlisted = replace(MACHINE, down_mbps=0.0, down_gb=24.0)
    assert counter_fault(unlisted, TrafficMeasure(), 0.0) == ""
    assert counter_fault(replace(unlisted, down_gb=26.0), TrafficMeasure(), 0.0)


@pytest.mark.parametrize(("down_gb", "is_fault"), [(0.0, False), (0.001, True), (0.05, False)])
def test_a_counter_that_hardly_shows_our_own_transfers_is_faulty(down_gb: float, is_fault: bool) -> None:
    own = TrafficMeasure()
    own.sent(4 * GB)
    fault = counter_fault(replace(MACHINE, down_gb=down_gb), own, 100.0)
    assert fault.endswith("GB, and vastrun itself transferred 4 GB") is is_fault


def test_what_vastrun_transferred_counts_where_the_counter_shows_less_or_is_doubted() -> None:
    own, machine = TrafficMeasure(), replace(MACHINE, down_gb=3.0, up_gb=1.0)
    own.sent(GB)
    own.received(2 * GB)
    assert counted(machine, own, is_doubted=False) == replace(machine, up_gb=2.0)
    assert counted(machine, own, is_doubted=True) == replace(machine, down_gb=1.0, up_gb=2.0)
    free = replace(machine, extras=ExtraRates())
    assert counted(free, own, is_doubted=True) is free


@pytest.mark.parametrize(
    ("own_gb", "box_mb", "limited_gb"),
    [(0.0, 0, 0.0), (0.5, 0, 0.5), (0.5, 3072, 3.0), (0.5, 9999, 5.0), (9.0, 0, 5.0)],
)
def test_limits_ignore_traffic_of_counters_alone(own_gb: float, box_mb: int, limited_gb: float) -> None:
    own = TrafficMeasure(down_gb=own_gb, up_gb=own_gb)
    own.observe(BoxStatus(at=0.0, box="running", received_mb=box_mb, sent_mb=box_mb))
    meter = confirmed(replace(RENTED, meter=Meter(down_gb=5.0, up_gb=5.0)), own).meter
    assert (meter.down_gb, meter.up_gb) == (limited_gb, limited_gb)
