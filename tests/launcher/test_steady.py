"""A clock that is set while a run is watched changes nothing."""

from __future__ import annotations

import time

import pytest

from launcher.clocks import steady_clock


@pytest.mark.parametrize("jump_s", [-7200.0, 7200.0])
def test_a_clock_that_is_set_forward_or_back_moves_nothing(jump_s: float) -> None:
    readings = iter([1_000_000.0, 1_000_000.0 + jump_s])
    now = steady_clock(lambda: next(readings))
    before = time.monotonic()
    assert 1_000_000.0 <= now() <= 1_000_000.0 + time.monotonic() - before + 1.0


def test_it_goes_on_by_itself() -> None:
    now = steady_clock(lambda: 0.0)
    first, began = now(), time.monotonic()
    while time.monotonic() - began < 0.01:
        pass
    assert now() - first == pytest.approx(time.monotonic() - began, abs=0.05)
    assert now() > first
