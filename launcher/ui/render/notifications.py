"""Notifications as documents, with their text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vastrun.launcher.commands.queries import RunRow
from vastrun.launcher.core import Cost
from vastrun.launcher.core.batch import Batch, BatchProgress
from vastrun.launcher.notifications import BUDGET_SHARES, Notification, NotificationKind
from vastrun.launcher.ui.render.amounts import usd
from vastrun.launcher.ui.render.batch import progress_line
from vastrun.launcher.ui.render.verdict import cause_line, lease_line

_TITLES: Mapping[NotificationKind, str] = {
    NotificationKind.BUDGET_50: "50% of its money is spent",
    NotificationKind.BUDGET_80: "80% of its money is spent",
    NotificationKind.BUDGET_100: "its money limit is reached",
    NotificationKind.NOT_DESTROYED: "its machine may still be rented",
    NotificationKind.OUT_OF_REACH: "the provider rejects the key; the lease ends its machine",
    NotificationKind.BATCH_BUDGET_80: "80% of its budget is spent",
    NotificationKind.BATCH_BUDGET_100: "its budget is exhausted",
    NotificationKind.BATCH_END: "it has ended",
}
"""Titles; of others, the verdict of the run."""
_RUN_KEYS = ("job", "provider", "phase", "verdict", "cause", "detail", "step", "steps")
_PROGRESS_KEYS = ("points", "succeeded", "failed", "running", "waiting")


def notification_document(notification: Notification) -> Mapping[str, Any]:
    """Return a notification as a document; the first line of its `text` is a title."""
    run, batch, progress = notification.run, notification.batch, notification.progress
    if batch is not None and progress is not None:
        name, body = f"batch {batch.name}", _batch_body(batch, progress)
        about = {
            "batch": batch.name,
            "provider": batch.provider,
            **{key: getattr(progress, key) for key in _PROGRESS_KEYS},
            "reason": batch.reason,
            "outputs": batch.folder,
        }
    else:
        name, body = run.id, _body(notification)
        about = {
            "run_id": run.id,
            **{key: getattr(run, key) for key in _RUN_KEYS},
            "lease_ends_at": notification.lease.ends_at if notification.lease else None,
            "attempt": 1 + len(notification.earlier),
            "usd_all_attempts": round(notification.usd + notification.earlier_usd, 6),
            "outputs": run.out_dir,
        }
    return {
        "schema_version": 1,
        "event": notification.kind,
        "at": notification.at,
        **about,
        "usd": round(notification.usd, 6),
        "limit_usd": notification.limit_usd,
        "text": f"{name}: {_title(notification)}\n{body}",
    }


def _title(notification: Notification) -> str:
    if notification.kind is not NotificationKind.ATTEMPT:
        return _TITLES.get(notification.kind, str(notification.run.verdict))
    last, number = notification.earlier[0], 1 + len(notification.earlier)
    step = f"step {last.step}{f' of {last.steps}' if last.steps else ''}, " if last.step else ""
    spent = notification.usd + notification.earlier_usd
    return f"attempt {number} begins, {step}{usd(spent)} so far"


def _body(notification: Notification) -> str:
    """Return cost, cause, next command."""
    run = notification.run
    limit = "" if notification.limit_usd is None else f" of {usd(notification.limit_usd)}"
    lines = [f"job {run.job} on {run.provider}: {usd(notification.usd)}{limit} spent"]
    if notification.earlier:
        total, number = usd(notification.usd + notification.earlier_usd), 1 + len(notification.earlier)
        lines[0] += f"; {total} for all {number} attempts"
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


def _batch_body(batch: Batch, progress: BatchProgress) -> str:
    lines = [f"on {batch.provider}: {progress_line(progress, batch.spec.limits.usd)}"]
    if batch.reason:
        lines.append(f"not all points were started: {batch.reason}")
        lines += [f"try: {batch.resume_command}"] if batch.resume_command else []
    return "\n".join([*lines, f"vastrun batch results {batch.name}"])
