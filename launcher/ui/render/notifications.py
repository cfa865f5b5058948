"""Notices as people and programs read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launcher.core.exits import verdict_of
from launcher.decisions.notifications import BUDGET_SHARES, Milestone, Notice
from launcher.ui.render.amounts import usd
from launcher.ui.render.causes import because

Document = Mapping[str, Any]


def title(notice: Notice) -> str:
    """What happened to which run, in a few words."""
    run, share = notice.run, BUDGET_SHARES.get(notice.milestone)
    if notice.milestone is Milestone.BUDGET_100:
        return f"{run.id}: its money limit is reached"
    if share is not None:
        return f"{run.id}: {share:.0%} of its money is spent"
    if notice.milestone is Milestone.NOT_DESTROYED:
        return f"{run.id}: its machine may still be rented"
    return f"{run.id}: {verdict_of(run)}"


def body(notice: Notice) -> str:
    """What one needs to know next, on a few lines."""
    run = notice.run
    limit = "" if notice.limit_usd is None else f" of {usd(notice.limit_usd)}"
    lines = [f"job {run.job} on {run.provider}: {usd(notice.usd)}{limit} spent"]
    if why := because(run):
        lines.append(why)
    if notice.milestone is Milestone.NOT_DESTROYED:
        return "\n".join([*lines, f"try: vastrun resume {run.id}"])
    if notice.milestone in BUDGET_SHARES:
        return "\n".join([*lines, f"step {run.step} of {run.steps}" if run.steps else f"phase {run.phase}"])
    return "\n".join([*lines, f"outputs: {run.out_dir}"])


def notice_document(notice: Notice) -> Document:
    """The notice for a webhook."""
    run = notice.run
    return {
        "schema_version": 1,
        "event": notice.milestone,
        "at": notice.at,
        "run_id": run.id,
        "job": run.job,
        "provider": run.provider,
        "phase": run.phase,
        "verdict": verdict_of(run),
        "cause": run.cause,
        "detail": run.detail,
        "step": run.step,
        "steps": run.steps,
        "usd": round(notice.usd, 6),
        "limit_usd": notice.limit_usd,
        "outputs": run.out_dir,
        "text": f"{title(notice)}\n{body(notice)}",
    }
