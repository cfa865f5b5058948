"""Events of a run or a batch of which the user is notified, and which of them are due. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from vastrun.launcher.core import Cause, Event, Phase, Run, Verdict
from vastrun.launcher.core.batch import Batch, BatchProgress
from vastrun.launcher.core.verdict import VERDICT_OF
from vastrun.launcher.decisions.policy import DESTROY_TRIES
from vastrun.launcher.decisions.remaining_lease import RemainingLease


class NotificationKind(StrEnum):
    """Events of a run of which the user is notified."""

    BUDGET_50 = "budget_50"
    BUDGET_80 = "budget_80"
    BUDGET_100 = "budget_100"
    END = "end"
    """It succeeded, or was stopped by its user, or pruned by its batch."""
    FAILURE = "failure"
    LOST = "lost"
    """Its machine was taken away or vanished."""
    NOT_DESTROYED = "not_destroyed"
    """Its machine may still cost money."""
    OUT_OF_REACH = "out_of_reach"
    """The provider rejects the key: its machine runs until its lease ends it."""


@dataclass(frozen=True, kw_only=True)
class Notification:
    """A notification about a run."""

    kind: NotificationKind
    run: Run
    at: float
    usd: float
    """USD spent so far."""
    limit_usd: float | None
    lease: RemainingLease | None = None
    """Remaining lease of its machine, for OUT_OF_REACH only."""


class BatchNotificationKind(StrEnum):
    """Events of a batch of which the user is notified."""

    BUDGET_80 = "batch_budget_80"
    BUDGET_100 = "batch_budget_100"
    END = "batch_end"


@dataclass(frozen=True, kw_only=True)
class BatchNotification:
    """A notification about a batch."""

    kind: BatchNotificationKind
    batch: Batch
    progress: BatchProgress
    at: float


AnyNotification = Notification | BatchNotification


@dataclass(frozen=True, kw_only=True)
class NotificationText:
    """A notification in the forms in which it is delivered."""

    title: str
    body: str
    document: Mapping[str, Any]
    """JSON document for a webhook."""


BUDGET_SHARES: Mapping[NotificationKind, float] = {
    NotificationKind.BUDGET_50: 0.5,
    NotificationKind.BUDGET_80: 0.8,
    NotificationKind.BUDGET_100: 1.0,
}
"""The share of `limits.usd` at which each is reached, in rising order."""

ENDING_OF: Mapping[Verdict, NotificationKind] = {
    Verdict.SUCCEEDED: NotificationKind.END,
    Verdict.STOPPED: NotificationKind.END,
    Verdict.PRUNED: NotificationKind.END,
    Verdict.FAILED: NotificationKind.FAILURE,
    Verdict.HUNG: NotificationKind.FAILURE,
    Verdict.LIMIT: NotificationKind.FAILURE,
    Verdict.UNKNOWN: NotificationKind.FAILURE,
    Verdict.NO_OFFER: NotificationKind.FAILURE,
    Verdict.PREEMPTED: NotificationKind.LOST,
    Verdict.LOST: NotificationKind.LOST,
}


def notifications_due(
    run: Run, limit_usd: float | None, spent_usd: float, sent: Collection[NotificationKind]
) -> list[NotificationKind]:
    """Return the kinds that are due and were not sent yet. Of the budget's, only the highest.

    `spent_usd`: cost of the run so far, with all of its nodes. A batch tells of its budget and its end
    itself; of its runs, only a machine that may still cost money is due.
    """
    due = [] if run.batch else _budget_due(run, limit_usd, spent_usd, sent)
    if run.phase is Phase.ENDED:
        due += [] if run.batch else [ENDING_OF[VERDICT_OF[run.cause]]]
    elif run.phase is Phase.DESTROY and run.destroy_tries >= DESTROY_TRIES:
        due.append(NotificationKind.NOT_DESTROYED)
    return [kind for kind in due if kind not in sent]


def notification_event(notification: Notification) -> Event:
    """Return the event that records a notification in the run's diary."""
    run, kind = notification.run, notification.kind
    text = f"notified: {kind}"
    return Event(
        run_id=run.id, at=notification.at, phase=run.phase, text=text, usd=notification.usd, told=kind
    )


def sent_kinds(events: Iterable[Event]) -> set[NotificationKind]:
    """Return the kinds that were sent, by the events of a run. Their texts do not count: a box writes some
    of them."""
    sent = {event.told for event in events}
    return {kind for kind in NotificationKind if kind in sent}


def _budget_due(
    run: Run, limit_usd: float | None, spent_usd: float, sent: Collection[NotificationKind]
) -> list[NotificationKind]:
    if limit_usd is None:
        return []
    # The lease stops a run a little before its money is gone, so that its outputs can still be downloaded.
    share = 1.0 if run.cause is Cause.MONEY_LIMIT else spent_usd / limit_usd
    reached = [kind for kind, at in BUDGET_SHARES.items() if share >= at]
    # The cost falls when a machine turns out to have ended earlier: a lower threshold is then no news.
    highest_sent = max((BUDGET_SHARES[m] for m in sent if m in BUDGET_SHARES), default=0.0)
    return [m for m in reached[-1:] if BUDGET_SHARES[m] > highest_sent]


def batch_notifications_due(
    batch: Batch,
    progress: BatchProgress,
    sent: Collection[Event],
    started_at: float,
    *,
    is_used_up: bool,
    is_over: bool,
) -> list[BatchNotificationKind]:
    """Return the kinds that are due and were not sent yet.

    A changed budget counts again, as does an end after a run was started since (`started_at`: the newest).
    """
    due: list[BatchNotificationKind] = []
    limit_usd = batch.spec.limits.usd
    if limit_usd is not None:
        if is_used_up or progress.spent_usd >= limit_usd:
            due.append(BatchNotificationKind.BUDGET_100)
        elif progress.spent_usd >= 0.8 * limit_usd:
            due.append(BatchNotificationKind.BUDGET_80)
        known = {event.told for event in sent}
        full = _memo(BatchNotificationKind.BUDGET_100, batch)
        due = [kind for kind in due if not known & {_memo(kind, batch), full}]
    ends = [event.at for event in sent if event.told == _memo(BatchNotificationKind.END, batch)]
    if is_over and started_at >= max(ends, default=float("-inf")):
        due.append(BatchNotificationKind.END)
    return due


def batch_notification_event(notification: BatchNotification, run: Run) -> Event:
    """Return the event that records a batch's notification in the diary of one of its runs."""
    memo = _memo(notification.kind, notification.batch)
    usd = notification.progress.spent_usd
    return Event(
        run_id=run.id, at=notification.at, phase=run.phase, text=f"notified: {memo}", usd=usd, told=memo
    )


def _memo(kind: BatchNotificationKind, batch: Batch) -> str:
    if kind is BatchNotificationKind.END or batch.spec.limits.usd is None:
        return str(kind)
    return f"{kind} of {batch.spec.limits.usd:g}"
