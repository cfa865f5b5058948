"""`why` of a batch: how many points failed of which cause, and one run of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from launcher.core import Run
from launcher.core.batch import Batch
from launcher.decisions.schedule import PointState
from launcher.ui.render.summary import cause_line
from launcher.ui.render.table import facts

_MAX_CAUSES = 8


def batch_why_text(batch: Batch, states: Sequence[PointState]) -> str:
    """Return how the points ended, then for each cause of a failure the newest run and what it said."""
    ended = Counter(str(state.verdict or ("running" if state.is_open else "waiting")) for state in states)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in ended.most_common())
    lines = [("batch", batch.name), ("points", counts or "none yet"), ("ended", batch.reason)]
    failed: dict[str, list[Run]] = {}
    for state in states:
        if state.has_failed and state.last is not None:
            failed.setdefault(str(state.last.cause or state.last.verdict), []).append(state.last)
    worst = sorted(failed.items(), key=lambda item: -len(item[1]))
    for cause, runs in worst[:_MAX_CAUSES]:
        newest = max(runs, key=lambda run: run.created_at)
        text = f"{len(runs)} x: {cause_line(newest)}\nvastrun why {newest.id}"
        lines.append((cause, text))
    if failed:
        lines.append(("try", f"vastrun batch retry {batch.name}, once the cause is gone"))
    return facts(lines)
