"""The notifications of one drive: each kind is sent once for a run, also across launchers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from vastrun.launcher.core import Run
from vastrun.launcher.core.errors import StorageError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.deadlines import RemainingLease
from vastrun.launcher.decisions.notifications import (
    Notification,
    NotificationKind,
    notification_event,
    notifications_due,
    sent_kinds,
)
from vastrun.launcher.ports import Clock, Ledger, Notifier


class Notifications:
    """Sends each notification of a run once; the diary records it, and this object when the diary cannot
    be written."""

    def __init__(self, spec: JobSpec, notifier: Notifier | None, ledger: Ledger, clock: Clock) -> None:
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
