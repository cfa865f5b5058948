"""The notifications of one drive: each kind is sent once for a run, also across launchers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from launcher.core import Run
from launcher.core.errors import StorageError
from launcher.core.job import JobSpec
from launcher.decisions.notifications import (
    Notification,
    NotificationKind,
    memo_of,
    notifications_due,
    told_in,
)
from launcher.ports import Clock, Ledger, Notifier


class Notifications:
    """What was told is remembered in the run's diary, and here when the diary cannot be written."""

    def __init__(self, spec: JobSpec, notifier: Notifier | None, ledger: Ledger, clock: Clock) -> None:
        self._spec, self._notifier, self._ledger, self._clock = spec, notifier, ledger, clock
        self._told: set[NotificationKind] | None = None

    def tell(self, run: Run, spent_usd: Callable[[float], float]) -> None:
        """Tell the user what the run has reached since. Never raises, never waits.

        `spent_usd` says what it cost by a moment.
        """
        if self._notifier is None or not self._notifier.wanted(self._spec):
            return
        now, limit_usd = self._clock.now(), self._spec.limits.usd
        told = self._told_before(run)
        usd = spent_usd(now)
        for kind in notifications_due(run, limit_usd, usd, told):
            told.add(kind)
            notification = Notification(kind=kind, run=run, at=now, usd=usd, limit_usd=limit_usd)
            self._notifier.send(notification, self._spec)
            with suppress(StorageError):
                self._ledger.tell(memo_of(notification))

    def _told_before(self, run: Run) -> set[NotificationKind]:
        if self._told is None:
            self._told = set()
            with suppress(StorageError):
                self._told = told_in(self._ledger.events(run.id))
        return self._told
