"""Results: the status and the end of runs and batches, as cards of a notebook, lines and data frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Any

from vastrun.launcher.core import Cause, Cost, Phase, Proof, Verdict
from vastrun.launcher.core.batch import BatchProgress
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.package_files import install_command
from vastrun.launcher.ui.render.notebook import card, curve, table

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """Phase, progress and cost of a run, by the ledger."""

    phase: Phase
    verdict: Verdict | None
    """Verdict; None while it is open."""
    step: int
    steps: int
    """Number of all steps; 0 while unknown."""
    usd: float
    """Cost of this attempt, so far or in total."""
    usd_per_hour: float
    is_driven: bool
    """True while a launcher drives it."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """The end of a run, or its state while it is open."""

    id: str
    """Id of the last attempt."""
    verdict: Verdict | None
    """Verdict; None while it is open."""
    cause: Cause | None
    """Cause of a failure."""
    detail: str
    exit_code: int | None
    """Exit code of `vastrun launch`: 11 while a machine may still be rented; else None while it is open."""
    step: int
    cost: Cost
    """Cost of the last attempt."""
    usd: float
    """USD for all attempts together."""
    scores: Mapping[str, float]
    """Scores of the final evaluation, by name; empty without one."""
    proofs: tuple[Proof, ...]
    """Evidence for the verdict."""
    outputs: Path
    """Folder of its outputs on this computer."""
    checkpoint: Path | None
    """Folder of checkpoints; None if no complete one was downloaded."""
    attempts: tuple[str, ...]
    """Ids of all attempts, oldest first."""

    @property
    def succeeded(self) -> bool:
        """True if every proof of success exists and holds."""
        return self.verdict is Verdict.SUCCEEDED

    def _repr_html_(self) -> str:
        facts = {
            "cause": "" if self.cause is None else f"{self.cause}: {self.detail}",
            "step": f"{self.step:,}",
            "cost": f"${self.usd:.3f}" + _attempts(len(self.attempts)),
            "outputs": str(self.outputs),
        }
        scores = [(name, f"{value:.4g}") for name, value in self.scores.items()]
        doubts = [(proof.name, proof.text) for proof in self.proofs if not proof.holds]
        return card(
            f"run {self.id}",
            str(self.verdict or "open"),
            tone_of(self.verdict),
            facts,
            table(("score", "value"), scores) if scores else "",
            table(("proof that does not hold", ""), doubts, wraps=True) if doubts else "",
        )


@dataclass(frozen=True, kw_only=True)
class BatchStatus(BatchProgress):
    """Progress and cost of a batch."""

    budget_usd: float | None
    """Budget of all runs together; None without a limit."""
    is_driven: bool
    """True while a launcher drives it."""
    reason: str
    """Reason why it ended before its last point; empty otherwise."""


@dataclass(frozen=True, kw_only=True)
class PointRow:
    """The result of one point: a row of the table of results."""

    number: int
    """Number within the batch, from 1."""
    values: Mapping[str, Any]
    """Values that the point sets, by dotted key."""
    verdict: Verdict | None
    """Verdict of its last run; None until it has ended."""
    cause: Cause | None
    """Cause of a failure."""
    metric: float | None
    """Value of the objective's metric; None if unknown or diverged."""
    diverged: bool = False
    """Its last value is not a finite number."""
    step: int
    hours: float
    """Hours from rent to release, all attempts together."""
    usd: float
    attempts: int
    run: str | None
    """Id of its last attempt; None if it was not started."""
    outputs: Path | None
    """Folder of that attempt on this computer."""


class BatchResults(list[PointRow]):
    """The results of a batch, the best first: a list of `PointRow`, which a notebook shows as a table."""

    def to_dataframe(self) -> Any:
        """Return a pandas.DataFrame with a row for each point. Raises UsageError without pandas.

        Each value that a point sets is a column; a value called like another column is `values.NAME`.
        """
        plain = [field.name for field in fields(PointRow) if field.name != "values"]
        return data_frame([_record(row, plain) for row in self], plain)

    def _repr_html_(self) -> str:
        return rows_table(self)


def _record(row: PointRow, plain: Sequence[str]) -> dict[str, Any]:
    own = {name: getattr(row, name) for name in plain}
    texts = {name: str(own[name]) for name in ("verdict", "cause", "outputs") if own[name] is not None}
    values = {f"values.{key}" if key in own else key: value for key, value in row.values.items()}
    return {**own, **texts, **values}


def rows_table(rows: Sequence[PointRow]) -> str:
    """Return the results of a batch as a table, one column for each value that the points set."""
    keys = list(dict.fromkeys(key for row in rows for key in row.values))
    heads = (*keys, "verdict", "metric", "step", "cost", "run")
    return table(
        heads,
        [
            (
                *(row.values.get(key, "") for key in keys),
                row.verdict or ("open" if row.run else "waiting"),
                "diverged" if row.diverged else "" if row.metric is None else f"{row.metric:.4g}",
                row.step,
                f"${row.usd:.3f}",
                row.run or "",
            )
            for row in rows
        ],
    )


def tone_of(verdict: Verdict | None) -> str:
    """Return the tone of the badge of a verdict."""
    return "busy" if verdict is None else "good" if verdict is Verdict.SUCCEEDED else "bad"


def _attempts(count: int) -> str:
    return f" for {count} attempts" if count > 1 else ""


def data_frame(records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Any:
    """Return a pandas.DataFrame with a row for each record; these columns come first, and always exist.

    Raises UsageError where pandas is not installed.
    """
    try:
        pandas = import_module("pandas")
    except ModuleNotFoundError as error:
        raise UsageError("pandas is not installed", hint=install_command("notebook")) from error
    names = list(dict.fromkeys((*columns, *(name for record in records for name in record))))
    return pandas.DataFrame(list(records), columns=names)


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
