"""Metrics: write them every few steps as JSON and text, and to W&B, MLflow and TensorBoard."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.outcome import WandbRun
from vastrun.contract.records import write_atomically
from vastrun.contract.reports import TASK_LOSS_PREFIX
from vastrun.trainer.distributed.exit import exit_code_of, reason_of
from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.job.scores import score_lines
from vastrun.trainer.telemetry.mlflow_tracker import MlflowTracker
from vastrun.trainer.telemetry.tracker import Tracker

if TYPE_CHECKING:
    from vastrun.trainer.engine.current_stage import CurrentStage
    from vastrun.trainer.telemetry.figures import Figures, Throughput


@dataclass(frozen=True, kw_only=True)
class MetricsPoint:
    """The state of the training after `step` steps."""

    step: int
    loss: float
    """Mean loss over the global batch."""
    terms: dict[str, float] = field(default_factory=dict)
    """Terms of the loss by name, without weights; empty for a single term."""
    task_losses: dict[str, float] = field(default_factory=dict)
    """Mean loss of each task since the point before, by its name; without tasks that had no turn."""
    grad_norm: float
    at_s: float
    """Monotonic seconds of the host at which the device had finished the step."""
    throughput: Throughput
    figures: Figures

    def flat(self) -> dict[str, float]:
        """Return all known figures by name."""
        groups = {
            "step": self.step,
            "loss": self.loss,
            "terms": self.terms,
            "task_losses": {f"{TASK_LOSS_PREFIX}{task}": loss for task, loss in self.task_losses.items()},
            "grad_norm": self.grad_norm,
            **asdict(self.throughput),
            **asdict(self.figures),
        }
        return {name: value for name, value in _ungrouped(groups) if value is not None}


def _ungrouped(groups: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    """Yield each figure by its name, without its groups."""
    for name, value in groups.items():
        if isinstance(value, dict):
            yield from _ungrouped(value)
        else:
            yield name, value


class Metrics:
    """The metrics of rank 0, a context that ends the trackers' runs with its exit code."""

    def __init__(self, box: Path, job: Job, config: TrainConfig) -> None:
        self._box = box
        self._path = box / layout.METRICS
        self._config = config
        self._tracker = Tracker(box, job, config)
        self._job = job
        self._mlflow: MlflowTracker | None = None
        self._tensorboard: Any = None
        self._stage: CurrentStage | None = None
        """The stage whose steps are given; None: the only one."""

    def begin_at(self, step: int, wandb_id: str, stage: CurrentStage | None = None) -> None:
        """Remove what an earlier start wrote beyond `step`, and continue its W&B run and its MLflow run.

        `stage`: the one of several whose steps are given here; what is written counts the steps of the run.
        """
        self._stage = stage if stage and stage.is_one_of_several else None
        step = self._run_step(step)
        if self._path.exists():
            lines = self._path.read_text(encoding="utf-8").splitlines(keepends=True)
            valid = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= step]
            write_atomically(self._path, "".join(valid))
        self._tracker.continue_run(wandb_id)
        if self._config.mlflow.mode != "off":
            self._mlflow = MlflowTracker(self._box, self._job, self._config, wandb_id)
        if self._config.tensorboard:
            self._tensorboard = _summary_writer(self._box / layout.TENSORBOARD, step)

    def add(self, point: MetricsPoint) -> None:
        self._write(point.flat(), age_s=time.monotonic() - point.at_s)
        print(self._line(point), flush=True)

    def validated(self, step: int, nrmse: float, scores: Mapping[str, float]) -> None:
        """Record the scores on the validation split after `step` steps."""
        numbers = {f"validation.{name}": value for name, value in scores.items()}
        self._write({"step": step, "validation_nrmse": nrmse, **numbers})
        for line in score_lines(scores):
            print(f"validation after step {step}: {line}", flush=True)

    def _run_step(self, step: int) -> int:
        return self._stage.run_step(step) if self._stage else step

    def _write(self, figures: dict[str, float], *, age_s: float = 0.0) -> None:
        if self._stage:
            place = {"step": self._run_step(int(figures["step"])), "stage": self._stage.span.number + 1}
            figures = {**figures, **place}
        record = {**figures, "at": round(time.time() - age_s, 3)}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            finite = {name: value if math.isfinite(value) else None for name, value in record.items()}
            file.write(json.dumps(finite) + "\n")
        self._tracker.log(figures)
        if self._mlflow:
            self._mlflow.log(figures, record["at"])
        if self._tensorboard:
            for name, value in figures.items():
                self._tensorboard.add_scalar(name, value, int(figures["step"]))

    def _line(self, point: MetricsPoint) -> str:
        throughput = point.throughput
        mfu = "" if throughput.mfu is None else f"  {throughput.mfu:.0%} of the GPUs' peak"
        tasks = [f"{task} {loss:.4g}" for task, loss in point.task_losses.items()]
        by_task = f" ({', '.join(tasks)})" if len(self._config.data) > 1 else ""
        label = f"{self._stage.span.name}  " if self._stage else ""
        return (
            f"{label}step {self._run_step(point.step)}/{self._config.total_steps}  "
            f"loss {point.loss:.4g}{by_task}  lr {point.figures.lr:.2g}  "
            f"{throughput.samples_per_s:,.0f} samples/s{mfu}"
        )

    def show(self, step: int, pictures: Sequence[Path]) -> None:
        """Send pictures of the predictions after `step` steps to W&B and MLflow, by name."""
        self._tracker.show(self._run_step(step), pictures)
        if self._mlflow:
            self._mlflow.show(pictures)

    def finish(self, exit_code: int, scores: dict[str, float] | None = None) -> WandbRun:
        """Record the end of the training, or of one of its stages. Safe to repeat: the first call counts."""
        if self._stage and scores:
            # The next stage has scores of the same names.
            own = {f"{self._stage.span.name}/{name}": value for name, value in scores.items()}
            is_last = self._stage.span is self._stage.spans[-1]
            scores = {**own, **scores} if is_last else own
        if self._tensorboard:
            self._tensorboard.close()
        if self._mlflow:
            self._mlflow.finish(exit_code, scores)
            self._mlflow = None
        return self._tracker.finish(exit_code, scores)

    def __enter__(self) -> Metrics:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish(0 if error is None else exit_code_of(reason_of(error)))


def _summary_writer(folder: Path, step: int) -> Any:
    """Return TensorBoard's writer, which hides what an earlier start wrote beyond `step`; None without it."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        print("TensorBoard is off: the package tensorboard is not installed", flush=True)
        return None
    return SummaryWriter(str(folder), purge_step=step + 1, flush_secs=10)
