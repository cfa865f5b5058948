"""The notifications of a batch: of its budget and its end, each once, also across launchers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from vastrun.launcher.batch.schedule import PointState
from vastrun.launcher.config import read_job
from vastrun.launcher.core import Event, Run
from vastrun.launcher.core.batch import Batch, BatchProgress
from vastrun.launcher.core.errors import StorageError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.notifications import (
    BatchNotification,
    batch_notification_event,
    batch_notifications_due,
)
from vastrun.launcher.ports import Ledger, Notifier


class BatchNotifier:
    """Sends notifications to the addresses in the batch's job. The diary of its first run records those
    sent.
    """

    def __init__(self, notifier: Notifier | None, ledger: Ledger) -> None:
        self._notifier, self._ledger = notifier, ledger
        self._spec: JobSpec | None = None
        self._sent: list[Event] | None = None

    def check(self, states: Sequence[PointState]) -> None:
        """Look whether everybody can be addressed. Raises UsageError."""
        if self._notifier is not None and states:
            self._notifier.check(self._job(states))

    def notify(
        self,
        batch: Batch,
        states: Sequence[PointState],
        progress: BatchProgress,
        now: float,
        *,
        is_used_up: bool = False,
        is_over: bool = False,
    ) -> None:
        """Tell the user what the batch has reached since. Never raises, never waits.

        `is_used_up`: its budget has no room for another run; `is_over`: nothing more of it is driven.
        """
        if self._notifier is None or not states or not self._notifier.has_targets(self._job(states)):
            return
        runs = sorted((run for state in states for run in state.runs), key=lambda run: run.created_at)
        if not runs:  # there is no diary yet
            return
        sent = self._sent_before(runs[0])
        due = batch_notifications_due(
            batch, progress, sent, runs[-1].created_at, is_used_up=is_used_up, is_over=is_over
        )
        for kind in due:
            notification = BatchNotification(kind=kind, batch=batch, progress=progress, at=now)
            memo = batch_notification_event(notification, runs[0])
            sent.append(memo)
            self._notifier.send(notification, self._job(states))
            with suppress(StorageError):
                self._ledger.add_event(memo)

    def _job(self, states: Sequence[PointState]) -> JobSpec:
        if self._spec is None:
            self._spec = read_job(states[0].point.spec_json)
        return self._spec

    def _sent_before(self, first: Run) -> list[Event]:
        if self._sent is None:
            self._sent = []
            with suppress(StorageError):
                self._sent = [event for event in self._ledger.events(first.id) if event.told]
        return self._sent
