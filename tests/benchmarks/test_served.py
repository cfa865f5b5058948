"""What `serve --driver` leaves of a batch of many points, and that ended points cost it no memory."""

from __future__ import annotations

import pytest

from benchmarks.served import MAX_MB
from benchmarks.served_run import drive_end, simulate

pytestmark = pytest.mark.slow


def test_no_machine_of_a_served_batch_is_left_and_no_point_is_lost_or_begun_twice() -> None:
    seen = simulate(points=60, parallel=20)
    assert (seen.lost, seen.twice, seen.findings.left) == (0, 0, 0)
    assert seen.findings.most_at_once == 20
    assert seen.findings.rentals > 60, "some crashed or were lost, and were tried again"
    assert seen.used.max_mb < MAX_MB


def test_the_end_of_a_batch_of_10000_points_on_vast_fits_into_memory() -> None:
    seen = drive_end(points=10_000, parallel=5, speed=2.0, window_s=20.0)
    assert (seen.lost, seen.twice, seen.left) == (0, 0, 0)
    assert seen.points < 20
    assert {str(state.verdict) for state in seen.states} == {"SUCCEEDED"}
    assert seen.used.max_mb < MAX_MB
