"""Pruning: judges a batch's points by their metrics, and asks for the end of those that fell behind."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from vastrun.launcher.batch.early_stop import Curve, condense, pruning_event, runs_to_prune
from vastrun.launcher.core import Phase, Run, UserRequest
from vastrun.launcher.core.batch import EarlyStop, Goal, Pruning
from vastrun.launcher.outputs.folder import Outputs
from vastrun.launcher.ports import Ledger

MAX_CHECK_INTERVAL_S, MIN_CHECK_INTERVAL_S = 10.0, 2.0
"""Between two looks, at most and at least."""
_CHECKS_PER_RUNG = 4
"""Checks before the first rung: a run that falls behind there should be stopped soon."""


class Pruner:
    """Looks at all points of one batch now and then. Remembers nothing that a look cannot find again."""

    def __init__(self, rule: EarlyStop, goal: Goal, ledger: Ledger) -> None:
        self._rule, self._goal, self._ledger = rule, goal, ledger
        self._outputs: dict[str, Outputs] = {}
        self._ended: dict[str, Curve] = {}
        """Condensed curves of runs that have ended; files of open runs are read incrementally."""
        self._checked_at = -math.inf

    def look(self, attempts: Iterable[Sequence[Run]], now: float) -> list[Pruning]:
        """Ask for the end of runs that fell behind, when it is time to look; return those asked for now.

        `attempts`: of each point its runs, oldest first. They are one training, which continues from a
        checkpoint or begins again, and so one curve. Raises StorageError.
        """
        if 0 <= now - self._checked_at < MIN_CHECK_INTERVAL_S:
            return []
        started = [runs for runs in attempts if runs]
        if 0 <= now - self._checked_at < poll_interval_s(self._rule, [runs[-1] for runs in started], now):
            return []
        self._checked_at = now
        last = {runs[-1].id: runs[-1] for runs in started}
        curves = {runs[-1].id: [point for run in runs for point in self._curve(run)] for runs in started}
        running = {run.id for run in last.values() if _trains(run)}
        found = runs_to_prune(self._rule, self._goal, curves, running)
        return [pruning for pruning in found if prune(self._ledger, last[pruning.run], pruning, now)]

    def _curve(self, run: Run) -> Curve:
        if run.id not in self._ended:
            curve = self._outputs.setdefault(run.id, Outputs(run)).curve(self._rule.metric)
            if run.phase is not Phase.ENDED:
                return curve
            self._ended[run.id] = condense(self._rule, curve)
            del self._outputs[run.id]
        return self._ended[run.id]


def poll_interval_s(rule: EarlyStop, runs: Iterable[Run], now: float) -> float:
    """Return the seconds between two looks: a quarter of the fastest way to the first rung, bounded."""
    training = [run for run in runs if _trains(run) and run.step and now > run.phase_at]
    rung_s = min((rule.min_steps * (now - run.phase_at) / run.step for run in training), default=math.inf)
    return min(MAX_CHECK_INTERVAL_S, max(MIN_CHECK_INTERVAL_S, rung_s / _CHECKS_PER_RUNG))


def prune(ledger: Ledger, run: Run, pruning: Pruning, now: float) -> bool:
    """Ask the run's driver to prune it. Return False if its end was requested before. Raises StorageError.

    The reason is written first: a launcher that is killed in between leaves a run that continues and is
    judged again. In the other order it would leave a run that was pruned for no reason.
    """
    if ledger.user_request(run.id).cause is not None:
        return False
    ledger.add_event(pruning_event(pruning, run, now))
    ledger.ask(run.id, UserRequest.PRUNE)
    return True


def _trains(run: Run) -> bool:
    """Return whether steps are left: to prune a run that evaluates or downloads saves nothing."""
    return run.phase is Phase.TRAIN and (not run.steps or run.step < run.steps)
