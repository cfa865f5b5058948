"""How long a training still takes, by what was seen of it."""

from __future__ import annotations

import pytest

from launcher.flow.pace import Pace


def seen(*looks: tuple[float, float]) -> Pace:
    """Steps by moment."""
    pace = Pace()
    for at, step in looks:
        pace.saw(step, at)
    return pace


def test_what_is_left_follows_the_pace_that_was_seen() -> None:
    pace = seen(*((float(t), 1 + t // 2) for t in range(21)))
    assert pace.left_s(100, 20.0) == pytest.approx((100 - 11) * 2)
    assert pace.left_s(100, 21.0) == pytest.approx((100 - 11) * 2 - 1)


@pytest.mark.parametrize(
    "looks",
    [[], [(0.0, 0)], [(0.0, 0), (60.0, 3)], [(0.0, 1), (2.0, 3)], [(0.0, 1), (60.0, 100)]],
    ids=["nothing", "no step", "one step", "too short", "all done"],
)
def test_it_is_not_known_too_early_nor_when_all_is_done(looks: list[tuple[float, float]]) -> None:
    assert seen(*looks).left_s(100, 60.0) is None


def test_only_the_last_minutes_count() -> None:
    slow = [(float(t), 1 + t // 10) for t in range(0, 1000, 10)]
    fast = [(1000.0 + t, 100 + t) for t in range(400)]
    assert seen(*slow, *fast).left_s(1000, 1399.0) == pytest.approx(1000 - 499)


def test_after_a_restart_the_pace_is_taken_anew() -> None:
    pace = seen(*((float(t), t) for t in range(1, 300)), (300.0, 0), (330.0, 250))
    assert pace.left_s(1000, 331.0) is None
    pace.saw(255, 340.0)
    assert pace.left_s(1000, 340.0) == pytest.approx((1000 - 255) * 2)


def test_where_nothing_moves_the_next_step_is_always_still_to_come() -> None:
    pace = seen((0.0, 1), (10.0, 2), (20.0, 3))
    assert pace.left_s(5, 25.0) == pytest.approx(15.0)
    assert pace.left_s(5, 9000.0) == pytest.approx(10.0)
