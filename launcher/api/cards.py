"""Cards: runs and batches as a notebook shows them, and as one line of a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from vastrun.launcher.api.results import BatchStatus, PointRow, RunStatus, rows_table, tone_of
from vastrun.launcher.core import Phase
from vastrun.launcher.ui.render.notebook import card, curve

Points = Sequence[tuple[float, float]]


def run_card(run_id: str, status: RunStatus, metric: str, points: Points) -> str:
    """Return the card of a run, with the curve of one metric."""
    facts = {"step": _progress(status), "cost": _cost(status)}
    if status.verdict is None and not status.is_driven and status.phase is not Phase.ENDED:
        facts["launcher"] = "none; wait() or resume() starts one"
    return card(f"run {run_id}", _state(status), tone_of(status.verdict), facts, curve(metric, points))


def run_line(run_id: str, status: RunStatus, loss: float | None) -> str:
    """Return the progress of a run as one line."""
    figure = "" if loss is None else f"loss {loss:.4g}"
    parts = (run_id, _state(status), f"step {_progress(status)}", figure, _cost(status))
    return "  ".join(part for part in parts if part)


def batch_card(name: str, status: BatchStatus, rows: Sequence[PointRow]) -> str:
    """Return the card of a batch, with its results, the best first."""
    of_budget = "" if status.budget_usd is None else f" of ${status.budget_usd:.2f}"
    facts = {
        "points": _counts(status),
        "cost": f"${status.spent_usd:.3f}{of_budget}" + _hourly(status.usd_per_hour),
        "ended early": status.reason,
    }
    is_open = status.running or (status.waiting and status.is_driven)
    state = "running" if is_open else "ended" if not status.waiting else "stopped"
    tone = "busy" if is_open else "bad" if status.failed else "good" if not status.waiting else "still"
    return card(f"batch {name}", state, tone, facts, rows_table(rows))


def batch_line(name: str, status: BatchStatus) -> str:
    """Return the progress of a batch as one line."""
    return f"{name}  {_counts(status)}  ${status.spent_usd:.3f}{_hourly(status.usd_per_hour)}"


def _state(status: RunStatus) -> str:
    return str(status.verdict or status.phase)


def _progress(status: RunStatus) -> str:
    return f"{status.step:,} of {status.steps:,}" if status.steps else f"{status.step:,}"


def _cost(status: RunStatus) -> str:
    return f"${status.usd:.3f}" + ("" if status.verdict else _hourly(status.usd_per_hour))


def _hourly(usd_per_hour: float) -> str:
    return f" (${usd_per_hour:.2f} an hour)" if usd_per_hour else ""


def _counts(status: BatchStatus) -> str:
    counts = {
        "running": status.running,
        "waiting": status.waiting,
        "failed": status.failed,
        "pruned": status.pruned,
    }
    parts = [f"{number:,} {name}" for name, number in counts.items() if number]
    return ", ".join([f"{status.ended:,} of {status.points:,} ended", *parts])
