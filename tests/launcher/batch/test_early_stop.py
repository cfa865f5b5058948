"""Which runs of a batch are pruned: never the best, always the same ones, and with the reason in words."""

import math
import random
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vastrun.launcher.batch.early_stop import Curve, condense, runs_to_prune
from vastrun.launcher.core.batch import EarlyStop, Goal

ASHA = EarlyStop(rule="asha", min_steps=200, factor=3)
MEDIAN = EarlyStop(rule="median", min_steps=200)
GOALS: tuple[Goal, ...] = ("min", "max")

Curves = Mapping[str, Curve]


def flat(value: float, steps: int = 200, *, every: int = 100) -> Curve:
    return [(step, value) for step in range(every, steps + 1, every)]


def pruned(
    rule: EarlyStop, curves: Curves, *, goal: Goal = "min", running: set[str] | None = None
) -> list[str]:
    found = runs_to_prune(rule, goal, curves, set(curves) if running is None else running)
    return [pruning.run for pruning in found]


@st.composite
def races(draw: st.DrawFn) -> dict[str, list[tuple[float, float]]]:
    """Curves of the same steps, as far as each run has come."""
    value = st.floats(allow_nan=True, allow_infinity=True, width=32) | st.integers(0, 4).map(float)
    curves = {}
    for number in range(draw(st.integers(1, 12))):
        come = draw(st.integers(0, 20))
        values = draw(st.lists(value, min_size=come, max_size=come))
        curves[f"run-{number}"] = [(50.0 * (n + 1), v) for n, v in enumerate(values)]
    return curves


ANYTHING = st.floats() | st.integers(-(10**400), 10**400)
RULES = st.builds(
    EarlyStop,
    rule=st.sampled_from(["asha", "median"]),
    min_steps=st.integers(1, 400),
    factor=st.integers(2, 5),
)


@given(st.dictionaries(st.text(max_size=3), st.lists(st.tuples(ANYTHING, ANYTHING))), RULES)
def test_no_curve_makes_it_fail_and_only_running_runs_are_pruned(curves: Curves, rule: EarlyStop) -> None:
    for goal in GOALS:
        running = set(list(curves)[::2])
        found = runs_to_prune(rule, goal, curves, running | {"told nothing yet"})
        assert {pruning.run for pruning in found} <= running
        assert all(pruning.reason for pruning in found)


@given(races(), RULES, st.sampled_from(GOALS))
def test_the_best_run_at_its_rung_is_never_pruned(
    curves: dict[str, list[tuple[float, float]]], rule: EarlyStop, goal: Goal
) -> None:
    asha = EarlyStop(rule="asha", min_steps=rule.min_steps, factor=rule.factor)
    sign = 1 if goal == "min" else -1
    gone = set(pruned(asha, curves, goal=goal))
    rung = rule.min_steps
    while rung <= 1000:
        here = {
            run: [value for step, value in curve if step <= rung][-1]
            for run, curve in curves.items()
            if curve and curve[0][0] <= rung <= curve[-1][0]
        }
        finite = {
            run: sign * value
            for run, value in here.items()
            if math.isfinite(value) and any(math.isfinite(late) for _, late in curves[run][-2:])
        }
        best = [run for run, value in finite.items() if value == min(finite.values())]
        at_it = [run for run in best if curves[run][-1][0] < rung * rule.factor]
        assert gone.isdisjoint(at_it)
        rung *= rule.factor


@given(races(), RULES, st.sampled_from(GOALS), st.randoms())
def test_the_answer_depends_on_the_curves_alone(
    curves: dict[str, list[tuple[float, float]]], rule: EarlyStop, goal: Goal, dice: random.Random
) -> None:
    shuffled = list(curves.items())
    dice.shuffle(shuffled)
    assert runs_to_prune(rule, goal, dict(shuffled), list(curves)) == runs_to_prune(
        rule, goal, curves, set(curves)
    )


@given(races(), RULES, st.sampled_from(GOALS), st.data())
def test_what_is_remembered_of_runs_that_ended_gives_the_same_answer(
    curves: dict[str, list[tuple[float, float]]], rule: EarlyStop, goal: Goal, data: st.DataObject
) -> None:
    ended = data.draw(st.sets(st.sampled_from(sorted(curves))))
    remembered = {run: condense(rule, curve) if run in ended else curve for run, curve in curves.items()}
    running = set(curves) - ended
    assert runs_to_prune(rule, goal, remembered, running) == runs_to_prune(rule, goal, curves, running)


def test_of_a_long_run_that_ended_a_few_points_are_remembered() -> None:
    assert condense(ASHA, flat(0.5, 10_000, every=10)) == [
        (200, 0.5), (600, 0.5), (1800, 0.5), (5400, 0.5), (10_000, 0.5),
    ]  # fmt: skip


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.randoms(), st.sampled_from(GOALS))
def test_the_global_best_survives_in_any_order(values: list[int], dice: random.Random, goal: Goal) -> None:
    """Runs arrive one by one, in any order, with many ties; who is pruned stays where it is."""
    best = min(values) if goal == "min" else max(values)
    order = [(f"run-{number}", value) for number, value in enumerate(values)]
    dice.shuffle(order)
    arrived: dict[str, Curve] = {}
    gone: set[str] = set()
    for run, value in order:
        arrived[run] = flat(value)
        gone |= set(pruned(ASHA, arrived, goal=goal, running=set(arrived) - gone))

    assert gone.isdisjoint(run for run, value in order if value == best)


def test_of_nine_runs_at_a_rung_three_go_on() -> None:
    curves = {f"run-{n}": flat(n / 10) for n in range(9)}
    assert pruned(ASHA, curves) == [f"run-{n}" for n in range(3, 9)]
    assert pruned(ASHA, curves, goal="max") == [f"run-{n}" for n in range(6)]


def test_the_reason_says_where_it_stands_and_what_it_missed() -> None:
    values = {"best": 0.3, "second": 0.32, "third": 0.41, "fourth": 0.5}
    curves = {run: flat(value, 600) for run, value in values.items()}
    curves |= {f"other-{n}": flat(0.6, 600) for n in range(3)}
    (pruning,) = runs_to_prune(ASHA, "min", curves, {"third"})
    assert pruning.reason == (
        "at step 600 its loss 0.41 is not among the best third (best 2 of 7; the bar is 0.32)"
    )


def test_values_that_are_nearly_the_same_are_told_apart() -> None:
    curves = {"a": flat(0.32001), "b": flat(0.32002), "c": flat(0.33)}
    found = {pruning.run: pruning.reason for pruning in runs_to_prune(ASHA, "min", curves, set(curves))}
    assert "loss 0.32002 is not" in found["b"]
    assert "the bar is 0.32001" in found["b"]


def test_nobody_is_pruned_before_the_first_rung_or_among_too_few() -> None:
    early = {f"run-{n}": flat(n, 199, every=1) for n in range(9)}
    few = {"a": flat(0.1), "b": flat(9.0)}
    assert pruned(ASHA, early) == pruned(MEDIAN, early) == []
    assert pruned(ASHA, few) == pruned(MEDIAN, few) == []


def test_a_run_between_two_rungs_is_overtaken_and_one_that_has_left_them_is_not() -> None:
    curves = {"first": flat(0.5, 599, every=1), "second": flat(0.4), "third": flat(0.3)}
    assert pruned(ASHA, curves) == ["first", "second"]
    curves["first"] = flat(0.5, 600)
    assert pruned(ASHA, curves) == ["second"]


def test_runs_that_ended_still_set_the_bar() -> None:
    curves = {"ended": flat(0.1, 1000), "failed": flat(0.2), "slow": flat(0.9)}
    assert pruned(ASHA, curves, running={"slow"}) == ["slow"]


def test_the_value_at_a_rung_is_the_last_that_was_told_before_it() -> None:
    late = [(150, 0.2), (250, 9.0)]
    curves = {"late": late, "b": flat(0.3), "c": flat(0.4)}
    assert pruned(ASHA, curves) == ["b", "c"]


def test_what_a_run_told_before_it_began_again_counts_no_more() -> None:
    """It went back to the checkpoint of step 150; what it had told of step 200 was another training."""
    again = [(100, 0.5), (200, 0.1), (150, 0.6), (200, 0.9)]
    still_behind = [*again[:2], (150, 0.6)]
    others = {"b": flat(0.3), "c": flat(0.4)}
    assert pruned(ASHA, {"again": again, **others}) == ["again", "c"]
    assert pruned(ASHA, {"again": still_behind, **others}) == []


def test_a_run_that_continues_another_is_not_judged_at_rungs_before_its_beginning() -> None:
    continued = [(500, 0.9), (550, 0.9)]
    assert pruned(ASHA, {"continued": continued, "b": flat(0.3), "c": flat(0.4), "d": flat(0.5)}) == [
        "c",
        "d",
    ]


@pytest.mark.parametrize("rule", [ASHA, MEDIAN])
@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_run_that_ends_in_no_number_is_worst_regardless(rule: EarlyStop, goal: Goal, value: float) -> None:
    best = -9.0 if goal == "min" else 9.0
    once = [*flat(best, 200), (300, value)]
    others = {f"run-{n}": flat(float(n), 400) for n in range(3)}
    curves = others | {"diverged": [*once, (400, value)], "once": once}
    found = {pruning.run: pruning.reason for pruning in runs_to_prune(rule, goal, curves, set(curves))}
    assert found["diverged"] == "its loss is not a number at step 400"
    assert "once" not in found, "one bad value is no end: it may be a step that the program skips"


@pytest.mark.parametrize("goal", GOALS)
def test_a_run_that_ended_in_no_number_is_no_bar_for_the_others(goal: Goal) -> None:
    best = -9.0 if goal == "min" else 9.0
    ended = {f"ended-{n}": [*flat(best), (300, math.nan)] for n in range(3)}
    curves = {**ended, "good": flat(1.0), "equal": flat(1.0)}
    assert pruned(ASHA, curves, goal=goal, running={"good", "equal"}) == []
    assert pruned(MEDIAN, curves, goal=goal, running={"good", "equal"}) == []


def test_runs_that_all_diverged_are_left_to_end_by_themselves() -> None:
    curves = {f"run-{n}": flat(math.nan) for n in range(9)}
    assert pruned(ASHA, curves) == pruned(MEDIAN, curves) == []


def test_the_median_prunes_a_run_whose_best_is_worse_than_what_the_others_average() -> None:
    curves = {"a": flat(0.2, 400), "b": flat(0.3, 400), "c": flat(0.4, 400), "slow": flat(0.35, 300)}
    (pruning,) = runs_to_prune(MEDIAN, "min", curves, set(curves))
    assert pruning.run == "slow"
    assert pruning.reason == (
        "at step 300 its best loss so far, 0.35, is worse than 0.3, the median of the means of 3 other runs "
        "up to this step"
    )


def test_the_median_forgives_one_bad_value() -> None:
    others = {f"run-{n}": flat(0.3 + n / 100) for n in range(4)}
    jumps = [(100, 0.29), (200, 5.0)]
    assert pruned(MEDIAN, {**others, "jumps": jumps}, running={"jumps"}) == []
