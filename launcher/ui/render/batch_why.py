"""`why` of a batch: how many points failed of which cause, and one run of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from launcher.core import Run
from launcher.core.batch import Batch
from launcher.decisions.schedule import PointState
from launcher.ui.documents.document import Document
from launcher.ui.render.summary import cause_line
from launcher.ui.render.table import facts

_MAX_CAUSES = 8


class FailureCause(Document):
    """A cause of failed points of a batch."""

    cause: str
    """A cause; of a run that has none its verdict."""
    points: int
    run: str
    """The newest run that ended so."""
    detail: str
    """Detail of that run."""
    runs: Sequence[str]
    """The last runs of all these points."""


class ExplainedBatch(Document):
    """Ends of the points of a batch, and the causes."""

    batch: str
    reason: str
    """Why it ended before its last point; empty: it did not."""
    points: Mapping[str, int]
    """Number of points by verdict, `running` or `waiting`."""
    causes: Sequence[FailureCause]
    """The most frequent first."""
    next: str | None
    """Advice; null if no point failed."""

    @classmethod
    def of(cls, batch: Batch, states: Sequence[PointState]) -> ExplainedBatch:
        """Show how the points ended, with all causes."""
        causes = []
        for cause, runs in _failed(states):
            newest, ids = _newest(runs), [run.id for run in runs]
            causes.append(
                FailureCause(cause=cause, points=len(ids), run=newest.id, detail=newest.detail, runs=ids)
            )
        points = dict(_ends(states).most_common())
        advice = _next(batch) if causes else None
        return cls(batch=batch.name, reason=batch.reason, points=points, causes=causes, next=advice)


def batch_why_text(batch: Batch, states: Sequence[PointState]) -> str:
    """Return how the points ended, then for each cause of a failure the newest run and what it said."""
    counts = ", ".join(f"{count} {end}" for end, count in _ends(states).most_common())
    lines = [("batch", batch.name), ("points", counts or "none yet"), ("ended", batch.reason)]
    failed = _failed(states)
    for cause, runs in failed[:_MAX_CAUSES]:
        text = f"{len(runs)} x: {cause_line(_newest(runs))}\nvastrun why {_newest(runs).id}"
        lines.append((cause, text))
    if failed:
        lines.append(("try", _next(batch)))
    return facts(lines)


def _ends(states: Sequence[PointState]) -> Counter[str]:
    """Count the points by verdict, `running` or `waiting`."""
    return Counter(str(state.verdict or ("running" if state.is_open else "waiting")) for state in states)


def _failed(states: Sequence[PointState]) -> list[tuple[str, list[Run]]]:
    """Return the last runs of the failed points by cause, the most frequent first."""
    failed: dict[str, list[Run]] = {}
    for state in states:
        if state.has_failed and state.last is not None:
            failed.setdefault(str(state.last.cause or state.last.verdict), []).append(state.last)
    return sorted(failed.items(), key=lambda item: -len(item[1]))


def _newest(runs: Sequence[Run]) -> Run:
    return max(runs, key=lambda run: run.created_at)


def _next(batch: Batch) -> str:
    return f"vastrun batch retry {batch.name}, once the cause is gone"
