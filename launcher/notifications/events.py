"""Events of a run or a batch of which the user is notified, and which of them are due. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from vastrun.launcher.core import Cause, Event, Phase, Run, Verdict
from vastrun.launcher.core.batch import Batch, BatchProgress
from vastrun.launcher.core.verdict import VERDICT_OF
from vastrun.launcher.decisions.policy import DESTROY_TRIES
from vastrun.launcher.decisions.remaining_lease import RemainingLease


class NotificationKind(StrEnum):
    """Events of which the user is notified."""

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
    BATCH_BUDGET_80 = "batch_budget_80"
    BATCH_BUDGET_100 = "batch_budget_100"
    BATCH_END = "batch_end"


@dataclass(frozen=True, kw_only=True)
class Notification:
    """A notification about a run or a batch."""

    kind: NotificationKind
    run: Run
    """The run; of a batch its oldest one, whose diary records what was sent."""
    at: float
    usd: float
    """USD spent so far."""
    limit_usd: float | None
    lease: RemainingLease | None = None
    """Remaining lease of its machine, for OUT_OF_REACH only."""
    batch: Batch | None = None
    progress: BatchProgress | None = None
    """Progress of the batch; None: it is about a run."""

    @property
    def event(self) -> Event:
        """The event that records it in the diary. A changed budget of a batch counts again."""
        told = str(self.kind)
        if self.kind in (NotificationKind.BATCH_BUDGET_80, NotificationKind.BATCH_BUDGET_100):
            told = _budget_memo(self.kind, self.limit_usd or 0.0)
        run, text = self.run, f"notified: {told}"
        return Event(run_id=run.id, at=self.at, phase=run.phase, text=text, usd=self.usd, told=told)


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


def kinds_due(
    run: Run, limit_usd: float | None, spent_usd: float, sent: Mapping[str, float]
) -> list[NotificationKind]:
    """Return the kinds that are due and were not sent yet. Of the budget's, only the highest.

    `spent_usd`: cost of the run so far, with all of its nodes; `sent`: epoch seconds of what was sent. A
    batch tells of its budget and its end itself; of its runs, only a machine that may still cost money.
    """
    due = [] if run.batch else _budget_due(run, limit_usd, spent_usd, sent)
    if run.phase is Phase.ENDED:
        due += [] if run.batch else [ENDING_OF[VERDICT_OF[run.cause]]]
    elif run.phase is Phase.DESTROY and run.destroy_tries >= DESTROY_TRIES:
        due.append(NotificationKind.NOT_DESTROYED)
    return [kind for kind in due if kind not in sent]


def _budget_due(
    run: Run, limit_usd: float | None, spent_usd: float, sent: Mapping[str, float]
) -> list[NotificationKind]:
    if limit_usd is None:
        return []
    # The lease stops a run a little before its money is gone, so that its outputs can still be downloaded.
    share = 1.0 if run.cause is Cause.MONEY_LIMIT else spent_usd / limit_usd
    reached = [kind for kind, at in BUDGET_SHARES.items() if share >= at]
    # The cost falls when a machine turns out to have ended earlier: a lower threshold is then no news.
    highest_sent = max((at for kind, at in BUDGET_SHARES.items() if kind in sent), default=0.0)
    return [kind for kind in reached[-1:] if BUDGET_SHARES[kind] > highest_sent]


def batch_kinds_due(
    limit_usd: float | None,
    spent_usd: float,
    sent: Mapping[str, float],
    started_at: float,
    *,
    is_used_up: bool,
    is_over: bool,
) -> Iterator[NotificationKind]:
    """Yield the kinds of a batch that are due and were not sent yet.

    A changed budget counts again, as does an end after a run was started since (`started_at`: the newest).
    """
    if limit_usd is not None and _budget_memo(NotificationKind.BATCH_BUDGET_100, limit_usd) not in sent:
        if is_used_up or spent_usd >= limit_usd:
            yield NotificationKind.BATCH_BUDGET_100
        elif (
            spent_usd >= 0.8 * limit_usd
            and _budget_memo(NotificationKind.BATCH_BUDGET_80, limit_usd) not in sent
        ):
            yield NotificationKind.BATCH_BUDGET_80
    if is_over and started_at >= sent.get(NotificationKind.BATCH_END, float("-inf")):
        yield NotificationKind.BATCH_END


def _budget_memo(kind: NotificationKind, limit_usd: float) -> str:
    return f"{kind} of {limit_usd:g}"
