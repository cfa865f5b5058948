"""Milestones: what of a run is worth telling a user who is not looking. Pure decisions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from launcher.core import Cause, Event, Phase, Run, Verdict
from launcher.core.bills import cost_usd
from launcher.core.phases import VERDICT_OF
from launcher.decisions.policy import DESTROY_TRIES


class Milestone(StrEnum):
    """What of a run is worth telling a user who is not looking."""

    BUDGET_50 = "budget_50"
    BUDGET_80 = "budget_80"
    BUDGET_100 = "budget_100"
    END = "end"
    """It succeeded, or was stopped as asked."""
    FAILURE = "failure"
    LOST = "lost"
    """Its machine was taken away or vanished."""
    NOT_DESTROYED = "not_destroyed"
    """Its machine may still cost money."""


@dataclass(frozen=True, kw_only=True)
class Notice:
    """A milestone that a run has reached."""

    milestone: Milestone
    run: Run
    at: float
    usd: float
    """Spent so far."""
    limit_usd: float | None


BUDGET_SHARES: Mapping[Milestone, float] = {
    Milestone.BUDGET_50: 0.5,
    Milestone.BUDGET_80: 0.8,
    Milestone.BUDGET_100: 1.0,
}
"""The share of `limits.usd` at which each is reached, in rising order."""

ENDING_OF: Mapping[Verdict, Milestone] = {
    Verdict.SUCCEEDED: Milestone.END,
    Verdict.STOPPED: Milestone.END,
    Verdict.FAILED: Milestone.FAILURE,
    Verdict.HUNG: Milestone.FAILURE,
    Verdict.LIMIT: Milestone.FAILURE,
    Verdict.UNKNOWN: Milestone.FAILURE,
    Verdict.NO_OFFER: Milestone.FAILURE,
    Verdict.PREEMPTED: Milestone.LOST,
    Verdict.LOST: Milestone.LOST,
}


def milestones_due(
    run: Run, limit_usd: float | None, now: float, told: Collection[Milestone]
) -> list[Milestone]:
    """The milestones that the run has reached and nobody was told of. Of the budget's, the highest alone."""
    due = _budget_due(run, limit_usd, now, told)
    if run.phase is Phase.ENDED:
        due.append(ENDING_OF[VERDICT_OF[run.cause]])
    elif run.phase is Phase.DESTROY and run.destroy_tries >= DESTROY_TRIES:
        due.append(Milestone.NOT_DESTROYED)
    return [milestone for milestone in due if milestone not in told]


def memo_of(notice: Notice) -> Event:
    """The line of the diary that says that it was told."""
    run, milestone = notice.run, notice.milestone
    text = f"notified: {milestone}"
    return Event(run_id=run.id, at=notice.at, phase=run.phase, text=text, usd=notice.usd, told=milestone)


def told_in(events: Iterable[Event]) -> set[Milestone]:
    """The milestones that a diary says were told. What a line reads like says nothing: a box words some."""
    told = {event.told for event in events}
    return {milestone for milestone in Milestone if milestone in told}


def _budget_due(
    run: Run, limit_usd: float | None, now: float, told: Collection[Milestone]
) -> list[Milestone]:
    if limit_usd is None:
        return []
    # The lease stops a run a little before its money is gone, so that its outputs can still come home.
    share = 1.0 if run.cause is Cause.MONEY_LIMIT else cost_usd(run, now) / limit_usd
    reached = [milestone for milestone, at in BUDGET_SHARES.items() if share >= at]
    # The cost falls when a machine turns out to have ended earlier: a lower threshold is then no news.
    highest_told = max((BUDGET_SHARES[m] for m in told if m in BUDGET_SHARES), default=0.0)
    return [m for m in reached[-1:] if BUDGET_SHARES[m] > highest_told]
