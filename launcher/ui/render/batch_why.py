"""`why` of a batch: how many points failed of which cause, and one run of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from launcher.core import Run
from launcher.core.batch import Batch
from launcher.decisions.schedule import PointState
from launcher.ui.render.documents import Document
from launcher.ui.render.summary import cause_line
from launcher.ui.render.table import facts

_MAX_CAUSES = 8


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


def batch_why_document(batch: Batch, states: Sequence[PointState]) -> Document:
    """Describe how the points ended for `why --json`: all causes, the most frequent first."""
    failed = _failed(states)
    return {
        "batch": batch.name,
        "reason": batch.reason,
        "points": dict(_ends(states).most_common()),
        "causes": [
            {
                "cause": cause,
                "points": len(runs),
                "run": _newest(runs).id,
                "detail": _newest(runs).detail,
                "runs": [run.id for run in runs],
            }
            for cause, runs in failed
        ],
        "next": _next(batch) if failed else None,
    }


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
