"""Notifications as people and programs read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launcher.decisions.notifications import BUDGET_SHARES, Notification, NotificationKind
from launcher.ui.render.amounts import usd
from launcher.ui.render.summary import because

Document = Mapping[str, Any]


def title(notification: Notification) -> str:
    """Say what happened to which run, in a few words."""
    run, share = notification.run, BUDGET_SHARES.get(notification.kind)
    if notification.kind is NotificationKind.BUDGET_100:
        return f"{run.id}: its money limit is reached"
    if share is not None:
        return f"{run.id}: {share:.0%} of its money is spent"
    if notification.kind is NotificationKind.NOT_DESTROYED:
        return f"{run.id}: its machine may still be rented"
    return f"{run.id}: {run.verdict}"


def body(notification: Notification) -> str:
    """Say what one needs to know next, on a few lines."""
    run = notification.run
    limit = "" if notification.limit_usd is None else f" of {usd(notification.limit_usd)}"
    lines = [f"job {run.job} on {run.provider}: {usd(notification.usd)}{limit} spent"]
    if why := because(run):
        lines.append(why)
    if notification.kind is NotificationKind.NOT_DESTROYED:
        return "\n".join([*lines, f"try: vastrun resume {run.id}"])
    if notification.kind in BUDGET_SHARES:
        return "\n".join([*lines, f"step {run.step} of {run.steps}" if run.steps else f"phase {run.phase}"])
    return "\n".join([*lines, f"outputs: {run.out_dir}"])


def notification_document(notification: Notification) -> Document:
    """Return the notification for a webhook."""
    run = notification.run
    return {
        "schema_version": 1,
        "event": notification.kind,
        "at": notification.at,
        "run_id": run.id,
        "job": run.job,
        "provider": run.provider,
        "phase": run.phase,
        "verdict": run.verdict,
        "cause": run.cause,
        "detail": run.detail,
        "step": run.step,
        "steps": run.steps,
        "usd": round(notification.usd, 6),
        "limit_usd": notification.limit_usd,
        "outputs": run.out_dir,
        "text": f"{title(notification)}\n{body(notification)}",
    }
