"""Observer of a batch: shows its progress, prunes runs that fell behind by their metrics, and notifies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from vastrun.launcher.batch.early_stop import Curve, condense, runs_to_prune
from vastrun.launcher.batch.points import PointTable
from vastrun.launcher.batch.shared import BatchServices
from vastrun.launcher.config import read_job
from vastrun.launcher.core import Event, Phase, Run, UserRequest
from vastrun.launcher.core.batch import PRUNED_PREFIX, Batch, BatchProgress, EarlyStop, Goal, Pruning
from vastrun.launcher.core.bills import cost_usd
from vastrun.launcher.core.runs import PRUNING
from vastrun.launcher.notifications import DiaryNotifier, Notification, batch_kinds_due
from vastrun.launcher.outputs.folder import Outputs
from vastrun.launcher.ports import Ledger

_DISPLAY_INTERVAL_S = 2.0
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
    text, usd = f"{PRUNED_PREFIX}{pruning.reason}", cost_usd(run, now)
    ledger.add_event(Event(run_id=run.id, at=now, phase=run.phase, text=text, usd=usd, told=PRUNING))
    ledger.ask(run.id, UserRequest.PRUNE)
    return True


def _trains(run: Run) -> bool:
    """Return whether steps are left: to prune a run that evaluates or downloads saves nothing."""
    return run.phase is Phase.TRAIN and (not run.steps or run.step < run.steps)


class BatchObserver:
    """Shows one batch now and then: prunes its lagging runs, and sends its notifications."""

    def __init__(self, batch: Batch, services: BatchServices, table: PointTable) -> None:
        self._name, self._services, self._table = batch.name, services, table
        rule = batch.spec.early_stop if services.prunes else None
        self._pruner = None if rule is None else Pruner(rule, batch.spec.early_goal, services.ledger)
        self._notifier: DiaryNotifier | None = None
        self.is_used_up = False
        """The batch's own budget has no room for another run."""
        self._shown_at = 0.0

    def check_notifications(self) -> None:
        """Raise UsageError where notifications of the batch cannot be sent."""
        point, sender = self._table.first_point, self._services.notifier
        if sender is not None and point is not None:
            sender.check(read_job(point.spec_json))

    def observe(self, batch: Batch, now: float) -> None:
        """Show the progress, and prune and notify, if it is time to. Raises StorageError."""
        if now - self._shown_at < _DISPLAY_INTERVAL_S:
            return
        self._shown_at = now
        progress = self._progress()
        if self._pruner is not None:
            attempts = [state.runs for state in self._table.states if state.runs]
            for pruning in self._pruner.look(attempts, now):
                self._services.screen.note(f"pruning {pruning.run}: {pruning.reason}")
        self._services.screen.progress(progress, batch)
        self._notify(progress, is_over=False)

    def notify(self, *, is_over: bool) -> None:
        """Send the notifications that are due."""
        self._notify(self._progress(), is_over=is_over)

    def _progress(self) -> BatchProgress:
        self._table.refresh_open()
        held_usd = self._services.ledger.batches.held_usd(self._name)
        return self._table.progress(held_usd, self._services.now())

    def _notify(self, progress: BatchProgress, *, is_over: bool) -> None:
        """Send the notifications that are due to the addresses in the batch's job."""
        table, services = self._table, self._services
        point, first = table.first_point, table.first_run
        if services.notifier is None or point is None or first is None:  # without a run there is no diary yet
            return
        if self._notifier is None:
            self._notifier = DiaryNotifier(read_job(point.spec_json), services.notifier, services.ledger)
        batch, now, usd = services.ledger.batches.get(self._name), services.now(), progress.spent_usd
        limit_usd, started_at, is_used_up = batch.spec.limits.usd, table.newest_at, self.is_used_up

        def due(sent: Mapping[str, float]) -> Iterator[Notification]:
            for kind in batch_kinds_due(
                limit_usd, usd, sent, started_at, is_used_up=is_used_up, is_over=is_over
            ):
                yield Notification(
                    kind=kind, run=first, at=now, usd=usd, limit_usd=limit_usd, batch=batch, progress=progress
                )

        self._notifier.send(first.id, due)
