"""A clock that is set while a run is watched changes nothing."""

import time

import pytest

from vastrun.launcher.app import steady_clock

ROUNDING_S = 1e-6


@pytest.mark.parametrize("jump_s", [-7200.0, 7200.0])
def test_a_clock_that_is_set_forward_or_back_moves_nothing(jump_s: float) -> None:
    readings = iter([1_000_000.0, 1_000_000.0 + jump_s])
    before = time.monotonic()
    now = steady_clock(lambda: next(readings))
    assert 1_000_000.0 <= now() <= 1_000_000.0 + time.monotonic() - before + ROUNDING_S


def test_it_goes_on_by_itself() -> None:
    now = steady_clock(lambda: 0.0)
    before, first, after = time.monotonic(), now(), time.monotonic()
    while time.monotonic() - after < 0.01:
        pass
    least = time.monotonic() - after
    passed = now() - first
    assert least - ROUNDING_S <= passed <= time.monotonic() - before + ROUNDING_S
