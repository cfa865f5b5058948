"""Notifications as text and as documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vastrun.launcher.commands.queries import RunRow
from vastrun.launcher.core import Cost
from vastrun.launcher.notifications.events import (
    BUDGET_SHARES,
    AnyNotification,
    BatchNotification,
    BatchNotificationKind,
    NotificationKind,
    NotificationText,
)
from vastrun.launcher.ui.render.amounts import usd
from vastrun.launcher.ui.render.batch import progress_line
from vastrun.launcher.ui.render.verdict import cause_line, lease_line

Document = Mapping[str, Any]

_BATCH_TITLES: Mapping[BatchNotificationKind, str] = {
    BatchNotificationKind.BUDGET_80: "{}: 80% of its budget is spent",
    BatchNotificationKind.BUDGET_100: "{}: its budget is exhausted",
    BatchNotificationKind.END: "{} has ended",
}
_RUN_KEYS = ("job", "provider", "phase", "verdict", "cause", "detail", "step", "steps")
_PROGRESS_KEYS = ("points", "succeeded", "failed", "running", "waiting")


def notification_text(notification: AnyNotification) -> NotificationText:
    """Return a notification as text and as a document."""
    return NotificationText(
        title=title(notification), body=body(notification), document=notification_document(notification)
    )


def title(notification: AnyNotification) -> str:
    """Return the title of a notification."""
    if isinstance(notification, BatchNotification):
        return _BATCH_TITLES[notification.kind].format(f"batch {notification.batch.name}")
    run, share = notification.run, BUDGET_SHARES.get(notification.kind)
    if notification.kind is NotificationKind.BUDGET_100:
        return f"{run.id}: its money limit is reached"
    if share is not None:
        return f"{run.id}: {share:.0%} of its money is spent"
    if notification.kind is NotificationKind.NOT_DESTROYED:
        return f"{run.id}: its machine may still be rented"
    if notification.kind is NotificationKind.OUT_OF_REACH:
        return f"{run.id}: the provider rejects the key; the lease ends its machine"
    return f"{run.id}: {run.verdict}"


def body(notification: AnyNotification) -> str:
    """Return the body of a notification: cost, cause, next command."""
    if isinstance(notification, BatchNotification):
        return _batch_body(notification)
    run = notification.run
    limit = "" if notification.limit_usd is None else f" of {usd(notification.limit_usd)}"
    lines = [f"job {run.job} on {run.provider}: {usd(notification.usd)}{limit} spent"]
    if why := cause_line(run):
        lines.append(why)
    if notification.lease is not None:
        row = RunRow(run=run, cost=Cost(), lease=notification.lease)
        lines.append(f"its lease {lease_line(row, notification.at)}")
    if notification.kind in (NotificationKind.NOT_DESTROYED, NotificationKind.OUT_OF_REACH):
        return "\n".join([*lines, f"try: vastrun resume {run.id}"])
    if notification.kind in BUDGET_SHARES:
        return "\n".join([*lines, f"step {run.step} of {run.steps}" if run.steps else f"phase {run.phase}"])
    return "\n".join([*lines, f"outputs: {run.out_dir}"])


def _batch_body(notification: BatchNotification) -> str:
    batch = notification.batch
    lines = [f"on {batch.provider}: {progress_line(notification.progress, batch.spec.limits.usd)}"]
    if batch.reason:
        lines += [f"not all points were started: {batch.reason}", f"try: vastrun batch resume {batch.name}"]
    return "\n".join([*lines, f"vastrun batch results {batch.name}"])


def notification_document(notification: AnyNotification) -> Document:
    """Return the JSON document for a webhook."""
    if isinstance(notification, BatchNotification):
        return _batch_document(notification)
    run = notification.run
    return {
        "schema_version": 1,
        "event": notification.kind,
        "at": notification.at,
        "run_id": run.id,
        **{key: getattr(run, key) for key in _RUN_KEYS},
        "usd": round(notification.usd, 6),
        "limit_usd": notification.limit_usd,
        "lease_ends_at": notification.lease.ends_at if notification.lease else None,
        "outputs": run.out_dir,
        "text": f"{title(notification)}\n{body(notification)}",
    }


def _batch_document(notification: BatchNotification) -> Document:
    batch, progress = notification.batch, notification.progress
    return {
        "schema_version": 1,
        "event": notification.kind,
        "at": notification.at,
        "batch": batch.name,
        "provider": batch.provider,
        **{key: getattr(progress, key) for key in _PROGRESS_KEYS},
        "reason": batch.reason,
        "usd": round(progress.spent_usd, 6),
        "limit_usd": batch.spec.limits.usd,
        "outputs": batch.folder,
        "text": f"{title(notification)}\n{body(notification)}",
    }
