"""Early stop: runs of a batch that fell too far behind the others. Pure functions of their curves.

`asha` is asynchronous successive halving (Li et al., A System for Massively Parallel Hyperparameter Tuning,
MLSys 2020), as a rule that stops; `median` is the rule of Vizier (Golovin et al., KDD 2017).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from statistics import median

from vastrun.launcher.core.batch import EarlyStop, Goal, Pruning

Curve = Sequence[tuple[float, float]]
"""Steps and values as reported. Steps that go back are those of a run that was restarted there."""

_MAX_STEPS = 10**15
_MAX_VALUE = 1e100
"""Largest value that counts as a number: results of larger ones overflow."""
_MIN_COMPARED = 3
"""Min. number of other runs: a median of fewer says little."""
_SHARES: Mapping[int, str] = {2: "half", 3: "third", 4: "quarter"}


def runs_to_prune(
    rule: EarlyStop, goal: Goal, curves: Mapping[str, Curve], running: Collection[str]
) -> list[Pruning]:
    """Return the runs to prune now, by id.

    `curves`: of all runs of the batch that reported the metric, ended ones included. `running`: runs that
    still have steps to do; no other is pruned. The result depends on nothing else, so that a launcher that
    takes over decides the same.
    """
    curves_by_run = {
        run: _to_rising_curve(curve, goal, lost=2 if run in running else 1) for run, curve in curves.items()
    }
    curves_by_run = {run: curve for run, curve in curves_by_run.items() if curve.steps}
    judged = {run: curves_by_run[run] for run in sorted(running) if run in curves_by_run}
    find = _by_asha if rule.rule == "asha" else _by_median
    return sorted(find(rule, curves_by_run, judged), key=lambda pruning: pruning.run)


def condense(rule: EarlyStop, curve: Curve) -> Curve:
    """Return the part of an ended run's curve that later decisions need.

    A batch of a thousand runs keeps a few points of each: those at the rungs of asha, and the last.
    """
    rising = _rising(curve)
    if rule.rule != "asha" or not rising:
        return rising
    steps = [step for step, _ in rising]
    ends = [bisect_right(steps, rung) - 1 for rung in _rungs(rule, steps[-1])]
    places = dict.fromkeys([*(place for place in ends if place >= 0), len(rising) - 1])
    return [rising[place] for place in places]


@dataclass(frozen=True, kw_only=True)
class _RisingCurve:
    """A curve with rising steps, its values signed so that the lowest is best; inf where it is no number."""

    steps: Sequence[float]
    costs: Sequence[float]
    sign: int

    @property
    def last_step(self) -> float:
        return self.steps[-1]

    def reached(self, step: float) -> bool:
        """Return whether it got so far and reported the metric before: after a checkpoint it may not have."""
        return self.steps[0] <= step <= self.last_step

    def cost_at(self, step: float) -> float:
        """Return the last value reported up to that step. Not interpolated: a later one is unknown then."""
        return self.costs[bisect_right(self.steps, step) - 1]

    def mean_until(self, step: float) -> float:
        end = bisect_right(self.steps, step)
        return self._sums[end - 1] / end

    @cached_property
    def _sums(self) -> Sequence[float]:
        """Sums up to each step, cached: each run's mean is needed for every run that is compared with it."""
        return list(accumulate(self.costs))

    def shown(self, cost: float) -> float:
        """Return the value of the metric for a signed cost."""
        return self.sign * cost + 0.0  # never -0


def _to_rising_curve(curve: Curve, goal: Goal, lost: int) -> _RisingCurve:
    """Return the curve with rising steps: values of later steps before a restart do not count.

    `lost`: number of last values that are all no numbers when it diverged, which no earlier value makes good.
    """
    sign, rising = 1 if goal == "min" else -1, _rising(curve)
    # A run whose loss is infinite has diverged, whichever end is best.
    costs = [sign * float(value) + 0.0 if abs(value) <= _MAX_VALUE else math.inf for _, value in rising]
    if min(costs[-lost:], default=0.0) == math.inf:
        costs = [math.inf] * len(costs)
    return _RisingCurve(steps=[step for step, _ in rising], costs=costs, sign=sign)


def _rising(curve: Curve) -> Curve:
    monotone: list[tuple[float, float]] = []
    for step, value in curve:
        if not 0 <= step <= _MAX_STEPS:
            continue
        while monotone and monotone[-1][0] >= step:
            del monotone[-1]
        monotone.append((step, value))
    return monotone


def _by_asha(
    rule: EarlyStop, curves_by_run: Mapping[str, _RisingCurve], judged: Mapping[str, _RisingCurve]
) -> Iterator[Pruning]:
    """Yield the runs to prune, each compared at its highest rung with all that reached that rung so far.

    Runs do not wait for others: a rung that waited until it is full would leave paid machines idle. The
    paper decides once, when a run arrives, since it cannot take back a promotion. A running run can still
    be stopped, so it is compared until it reaches the next rung: arriving first at an empty rung is no
    advantage.
    """
    longest = max((curve.last_step for curve in judged.values()), default=0.0)
    for rung in _rungs(rule, longest):
        above = rung * rule.factor
        here = {run: curve for run, curve in judged.items() if rung <= curve.last_step < above}
        if here:
            yield from _below_the_bar(rule, rung, curves_by_run, here)


def _rungs(rule: EarlyStop, longest: float) -> Iterator[int]:
    rung = rule.min_steps
    while rung <= longest:
        yield rung
        rung *= rule.factor


def _below_the_bar(
    rule: EarlyStop, rung: int, curves_by_run: Mapping[str, _RisingCurve], judged: Mapping[str, _RisingCurve]
) -> Iterator[Pruning]:
    """Yield the runs that are worse than the last of the best 1/factor. Equal ones continue."""
    costs = sorted(curve.cost_at(rung) for curve in curves_by_run.values() if curve.reached(rung))
    best = len(costs) // rule.factor
    if not best:  # of so few, a factor-th part is less than one run: whoever was early would be lucky
        return
    bar = costs[best - 1]
    for run, curve in judged.items():
        if not curve.reached(rung):
            continue
        cost = curve.cost_at(rung)
        if cost == math.inf > costs[0]:  # also where so many diverged that they are among the best
            step = curve.last_step if min(curve.costs) == math.inf else rung
            yield Pruning(run=run, reason=f"its {rule.metric} is not a number at step {step:g}")
        elif cost > bar:
            value, bar_text = _to_distinct_text(curve.shown(cost), curve.shown(bar))
            share = _SHARES.get(rule.factor, f"1/{rule.factor}")
            yield Pruning(
                run=run,
                reason=f"at step {rung} its {rule.metric} {value} is not among the best {share} "
                f"(best {best} of {len(costs)}; the bar is {bar_text})",
            )


def _by_median(
    rule: EarlyStop, curves_by_run: Mapping[str, _RisingCurve], judged: Mapping[str, _RisingCurve]
) -> Iterator[Pruning]:
    """Yield the runs whose best value is worse than the median of the others' means up to the same step.

    Compares a best value with means: a curve that jumps is not pruned for one bad value. Works where asha
    does not: with few runs, or none that trains much longer.
    """
    for run, curve in judged.items():
        step = curve.last_step
        means = [
            other.mean_until(step)
            for name, other in curves_by_run.items()
            if name != run and other.reached(step)
        ]
        if step < rule.min_steps or len(means) < _MIN_COMPARED:
            continue
        best, usual = min(curve.costs), median(means)
        if best == math.inf > usual:
            yield Pruning(run=run, reason=f"its {rule.metric} is not a number at step {step:g}")
        elif best > usual:
            value, bar = _to_distinct_text(curve.shown(best), curve.shown(usual))
            yield Pruning(
                run=run,
                reason=f"at step {step:g} its best {rule.metric} so far, {value}, is worse than {bar}, "
                f"the median of the means of {len(means)} other runs up to this step",
            )


def _to_distinct_text(one: float, other: float) -> tuple[str, str]:
    """Return both numbers with as many digits as they need to differ."""
    digits = 3
    while digits < 17 and f"{one:.{digits}g}" == f"{other:.{digits}g}":
        digits += 1
    return f"{one:.{digits}g}", f"{other:.{digits}g}"
