"""What a batch's points say: known values, ties, and nothing where nothing can be said."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vastrun.launcher.batch.analysis import (
    FinishedPoint,
    influences,
    pareto_front,
    ranks,
    spearman,
    variance_share,
)
from vastrun.launcher.core.batch import Goal


def points(values: Sequence[Any], metrics: Sequence[float], *, key: str = "lr") -> list[FinishedPoint]:
    return [
        FinishedPoint(id=f"p{n}", values={key: value}, metric=metric, usd=1.0)
        for n, (value, metric) in enumerate(zip(values, metrics, strict=True))
    ]


def test_equal_values_share_the_mean_of_their_ranks() -> None:
    assert ranks([10.0, 30.0, 20.0, 20.0]) == [1.0, 4.0, 2.5, 2.5]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        # Of Wikipedia's page on the coefficient: IQ, and hours of TV a week.
        ([106, 100, 86, 101, 99, 103, 97, 113, 112, 110], [7, 27, 2, 50, 28, 29, 20, 12, 6, 17], -29 / 165),
        ([1, 2, 3, 4, 5], [5, 6, 7, 8, 7], 0.8207826816681233),  # of scipy.stats.spearmanr: a tie
        ([1, 2, 3, 4, 5], [1e-9, 1.0, 2.0, 3.0, 1e9], 1.0),
        ([1, 2, 3, 4, 5], [5.0, 4.0, 3.0, 2.0, 1.0], -1.0),
        ([1, 1, 1, 1, 1], [5.0, 4.0, 3.0, 2.0, 1.0], None),
    ],
)
def test_spearman_of_known_values(one: list[float], other: list[float], expected: float | None) -> None:
    assert spearman(one, other) == (None if expected is None else pytest.approx(expected, abs=1e-12))


@pytest.mark.parametrize(
    ("groups", "values", "expected"),
    [
        ("aaabbbcc", [1, 1, 1, 2, 2, 2, 2, 2], 1.0),  # of scipy.stats.kruskal: H = 7
        ("aaaaabbbbb", [1, 3, 5, 7, 9, 2, 4, 6, 8, 10], 0.0),  # H = 0.27: less than chance
        ("aaabbb", [1, 2, 3, 4, 5, 6], (27 / 7 - 1) / 4),
        ("abcdef", [1, 2, 3, 4, 5, 6], None),
        ("aaaaaa", [1, 2, 3, 4, 5, 6], None),
        ("aaabbb", [1, 1, 1, 1, 1, 1], None),
    ],
)
def test_share_of_variance_of_known_values(groups: str, values: list[float], expected: float | None) -> None:
    assert variance_share(groups, values) == (None if expected is None else pytest.approx(expected))


def test_the_strongest_parameter_comes_first_and_says_how_it_was_measured() -> None:
    found = influences(
        [
            FinishedPoint(
                id=f"p{n}",
                values={
                    "lr": 10.0**-n,
                    "seed": n * 7 % 5,
                    "core": "fno" if n < 4 else "attention",
                    "name": "x",
                },
                metric=float(n),
                usd=1.0,
            )
            for n in range(8)
        ]
    )

    assert [str(influence) for influence in found] == [
        "lr: rank correlation -1.00 over 8 points",
        "core: share of variance 0.72 over 8 points",
        "seed: rank correlation +0.33 over 8 points",
    ]


def test_nothing_is_said_of_under_five_finished_points() -> None:
    assert influences(points([1, 2, 3, 4], [1.0, 2.0, 3.0, 4.0])) == []
    assert influences(points([1, 2, 3, 4, 5], [1.0, 2.0, 3.0, 4.0, math.nan])) == []
    assert influences(points([1, 2, 3, 4, 5], [1.0, 2.0, 3.0, 4.0, 5.0]))[0].points == 5


def test_points_without_a_parameter_do_not_count_for_it() -> None:
    mixed = points([1, 2, 3, 4], [1, 2, 3, 4]) + points([1, 2, 3, 4, 5], [1, 2, 3, 4, 5], key="dim")
    assert [influence.key for influence in influences(mixed)] == ["dim"]


@pytest.mark.parametrize("value", [True, "64", None, [1, 2], math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_compared_by_groups(value: object) -> None:
    (influence,) = influences(points([value, value, value, 1, 1, 1], [1, 2, 3, 4, 5, 6]))
    assert influence.measure == "share of variance"


def test_the_front_has_what_nothing_beats_in_both_the_cheapest_first() -> None:
    told = {"a": (0.5, 1.0), "b": (0.3, 2.0), "c": (0.4, 3.0), "d": (0.1, 9.0), "e": (math.nan, 0.1)}
    told |= {"f": (0.3, 2.0), "g": (0.31, 2.0)}
    all_points = [
        FinishedPoint(id=name, values={}, metric=metric, usd=usd) for name, (metric, usd) in told.items()
    ]
    assert [point.id for point in pareto_front(all_points, "min")] == ["a", "b", "f", "d"]
    assert [point.id for point in pareto_front(all_points, "max")] == ["a"]


NUMBERS = st.floats(allow_nan=True, allow_infinity=True) | st.integers(0, 3).map(float)


@given(st.lists(st.tuples(NUMBERS, st.integers(0, 4)), max_size=20), st.sampled_from(["min", "max"]))
def test_the_front_is_all_that_is_not_dominated(told: list[tuple[float, int]], goal: Goal) -> None:
    all_points = [
        FinishedPoint(id=str(n), values={}, metric=metric, usd=usd) for n, (metric, usd) in enumerate(told)
    ]
    sign = 1 if goal == "min" else -1
    known = [point for point in all_points if math.isfinite(point.metric)]

    def dominates(one: FinishedPoint, other: FinishedPoint) -> bool:
        pair = (sign * one.metric, one.usd), (sign * other.metric, other.usd)
        return pair[0] != pair[1] and pair[0][0] <= pair[1][0] and pair[0][1] <= pair[1][1]

    front = pareto_front(all_points, goal)

    expected = {point.id for point in known if not any(dominates(other, point) for other in known)}
    assert {point.id for point in front} == expected
    assert [point.usd for point in front] == sorted(point.usd for point in front)


@given(st.lists(st.tuples(st.none() | st.booleans() | st.text(max_size=2) | NUMBERS, NUMBERS), max_size=20))
def test_any_points_can_be_analysed(told: list[tuple[object, float]]) -> None:
    for influence in influences(points(*zip(*told, strict=True)) if told else []):
        assert -1 <= influence.strength <= 1
