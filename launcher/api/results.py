"""Results: the status and the end of runs and batches, as lines, tables and data frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Any

from vastrun.launcher.core import Cause, Cost, MachineState, Phase, Proof, Verdict
from vastrun.launcher.core.batch import BatchProgress
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.package_files import install_command
from vastrun.launcher.ui.render.amounts import table
from vastrun.launcher.ui.render.batch_results import values_text


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
    machine_state: MachineState | None = None
    """State of a machine that does not answer; None: it answers, or there is none yet."""


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

    def __repr__(self) -> str:
        cause = "" if self.cause is None else f", {self.cause}: {self.detail}"
        return f"<result of {self.id}: {self.verdict or 'open'}, step {self.step}, ${self.usd:.3f}{cause}>"


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
    """The results of a batch, the best first: a list of `PointRow` that is shown as a table."""

    def to_dataframe(self) -> Any:
        """Return a pandas.DataFrame with a row for each point. Raises UsageError without pandas.

        Each value that a point sets is a column; a value called like another column is `values.NAME`.
        """
        plain = [field.name for field in fields(PointRow) if field.name != "values"]
        return data_frame([_record(row, plain) for row in self], plain)

    def __repr__(self) -> str:
        rows = [
            (
                values_text(row.values),
                str(row.verdict or ("open" if row.run else "waiting")),
                "diverged" if row.diverged else "-" if row.metric is None else f"{row.metric:.4g}",
                str(row.step),
                f"${row.usd:.3f}",
                row.run or "-",
            )
            for row in self
        ]
        return table(("VALUES", "VERDICT", "METRIC", "STEP", "COST", "RUN"), rows, right=(2, 3, 4))


def _record(row: PointRow, plain: Sequence[str]) -> dict[str, Any]:
    own = {name: getattr(row, name) for name in plain}
    texts = {name: str(own[name]) for name in ("verdict", "cause", "outputs") if own[name] is not None}
    values = {f"values.{key}" if key in own else key: value for key, value in row.values.items()}
    return {**own, **texts, **values}


def data_frame(records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Any:
    """Return a pandas.DataFrame with a row for each record; these columns come first, and always exist.

    Raises UsageError where pandas is not installed.
    """
    try:
        pandas = import_module("pandas")
    except ModuleNotFoundError as error:
        raise UsageError("pandas is not installed", hint=install_command("pandas")) from error
    names = list(dict.fromkeys((*columns, *(name for record in records for name in record))))
    return pandas.DataFrame(list(records), columns=names)


def run_text(status: RunStatus, loss: float | None) -> str:
    """Return state, step, loss and cost of a run on one line."""
    parts = (
        str(status.verdict or status.phase),
        f"step {status.step:,}" + (f" of {status.steps:,}" if status.steps else ""),
        "" if loss is None else f"loss {loss:.4g}",
        _cost(status.usd, 0.0 if status.verdict else status.usd_per_hour),
    )
    return ", ".join(filter(None, parts))


def batch_text(status: BatchStatus) -> str:
    """Return the numbers of points and the cost of a batch on one line."""
    counts = {
        "running": status.running,
        "waiting": status.waiting,
        "failed": status.failed,
        "pruned": status.pruned,
    }
    parts = [f"{number:,} {name}" for name, number in counts.items() if number]
    cost = _cost(status.spent_usd, status.usd_per_hour)
    return ", ".join([f"{status.ended:,} of {status.points:,} ended", *parts, cost])


def _cost(usd: float, usd_per_hour: float) -> str:
    return f"${usd:.3f}" + (f" (${usd_per_hour:.2f} an hour)" if usd_per_hour else "")
