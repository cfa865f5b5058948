"""Senders: each notification of a run or a batch is sent once, also across launchers, by the diary."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from vastrun.launcher.config import read_job
from vastrun.launcher.core import Event, Run
from vastrun.launcher.core.batch import Batch, BatchPoint, BatchProgress
from vastrun.launcher.core.errors import StorageError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.remaining_lease import RemainingLease
from vastrun.launcher.notifications.events import (
    BatchNotification,
    Notification,
    NotificationKind,
    batch_notification_event,
    batch_notifications_due,
    notification_event,
    notifications_due,
    sent_kinds,
)
from vastrun.launcher.ports import Clock, Ledger

if TYPE_CHECKING:  # a command that notifies nobody does not need what posts
    from vastrun.launcher.notifications.delivery import UrlNotifier


class RunNotifier:
    """Sends each notification of a run once; the diary records it, and this object when the diary cannot
    be written."""

    def __init__(self, spec: JobSpec, notifier: UrlNotifier | None, ledger: Ledger, clock: Clock) -> None:
        self._spec, self._notifier, self._ledger, self._clock = spec, notifier, ledger, clock
        self._sent: set[NotificationKind] | None = None

    def send_due(self, run: Run, spent_usd: Callable[[float], float]) -> None:
        """Send the notifications that are due. Never raises, never waits.

        `spent_usd` returns the cost up to a moment.
        """
        if self._notifier is None or not self._notifier.has_targets(self._spec):
            return
        now, limit_usd = self._clock.now(), self._spec.limits.usd
        sent = self._sent_before(run)
        usd = spent_usd(now)
        for kind in notifications_due(run, limit_usd, usd, sent):
            self._send(Notification(kind=kind, run=run, at=now, usd=usd, limit_usd=limit_usd))

    def report_left_to_lease(self, run: Run, usd: float, lease: RemainingLease) -> None:
        """Notify the user that the run's machine is left to its lease."""
        kind = NotificationKind.OUT_OF_REACH
        if (
            self._notifier is None
            or not self._notifier.has_targets(self._spec)
            or kind in self._sent_before(run)
        ):
            return
        now, limit_usd = self._clock.now(), self._spec.limits.usd
        self._send(Notification(kind=kind, run=run, at=now, usd=usd, limit_usd=limit_usd, lease=lease))

    def _send(self, notification: Notification) -> None:
        assert self._notifier is not None
        # Marked first: a notifier that fails must not be called again at each poll.
        self._sent_before(notification.run).add(notification.kind)
        self._notifier.send(notification, self._spec)
        with suppress(StorageError):
            self._ledger.add_event(notification_event(notification))

    def _sent_before(self, run: Run) -> set[NotificationKind]:
        if self._sent is None:
            self._sent = set()
            with suppress(StorageError):
                self._sent = sent_kinds(self._ledger.events(run.id))
        return self._sent


class BatchNotifier:
    """Sends each notification of a batch once, to the addresses in its job. The diary of its first run
    records them."""

    def __init__(self, notifier: UrlNotifier | None, ledger: Ledger) -> None:
        self._notifier, self._ledger = notifier, ledger
        self._spec: JobSpec | None = None
        self._sent: list[Event] | None = None

    def check(self, point: BatchPoint | None) -> None:
        """Check the addresses of the batch's job, by its first point. Raises UsageError."""
        if self._notifier is not None and point is not None:
            self._notifier.check(self._job(point))

    def notify(
        self,
        batch: Batch,
        point: BatchPoint | None,
        first: Run | None,
        newest_at: float,
        progress: BatchProgress,
        now: float,
        *,
        is_used_up: bool = False,
        is_over: bool = False,
    ) -> None:
        """Send the notifications that are due. Never raises, never waits.

        `point`, `first`: its first point, and its oldest run, whose diary records what was sent; `newest_at`:
        epoch seconds at which its newest run was started. `is_used_up`: its budget has no room for another
        run; `is_over`: nothing more of it is driven.
        """
        if self._notifier is None or point is None or not self._notifier.has_targets(self._job(point)):
            return
        if first is None:  # there is no diary yet
            return
        sent = self._sent_before(first)
        due = batch_notifications_due(
            batch, progress, sent, newest_at, is_used_up=is_used_up, is_over=is_over
        )
        for kind in due:
            notification = BatchNotification(kind=kind, batch=batch, progress=progress, at=now)
            memo = batch_notification_event(notification, first)
            sent.append(memo)
            self._notifier.send(notification, self._job(point))
            with suppress(StorageError):
                self._ledger.add_event(memo)

    def _job(self, point: BatchPoint) -> JobSpec:
        if self._spec is None:
            self._spec = read_job(point.spec_json)
        return self._spec

    def _sent_before(self, first: Run) -> list[Event]:
        if self._sent is None:
            self._sent = []
            with suppress(StorageError):
                self._sent = [event for event in self._ledger.events(first.id) if event.told]
        return self._sent
