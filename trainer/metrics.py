"""Metrics of a training: every few steps a line of JSON, a line of text and a W&B point."""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from trainer import layout
from trainer.config import TrainConfig
from trainer.ending import exit_code_of, reason_of
from trainer.outcome import WandbRun
from trainer.rank import TrainJob
from trainer.records import write_atomically
from trainer.tracking import Tracker


@dataclass(frozen=True, kw_only=True)
class Point:
    """The state of the training after `step` steps."""

    step: int
    loss: float
    """Mean over the global batch."""
    lr: float
    grad_norm: float
    samples_per_s: float
    """Since the last point, over all ranks."""


class Rate:
    """Samples a second between two looks."""

    def __init__(self, batch: int, step: int) -> None:
        self._batch = batch
        self._step = step
        self._at = time.monotonic()

    def at(self, step: int) -> float:
        """Since the last look, or since the beginning."""
        now = time.monotonic()
        rate = (step - self._step) * self._batch / max(now - self._at, 1e-9)
        self._step, self._at = step, now
        return rate


class Metrics:
    """Open while rank 0 trains. Its end is also the end of the W&B run, which says how the training ended."""

    def __init__(self, box: Path, job: TrainJob, config: TrainConfig) -> None:
        self._path = box / layout.METRICS
        self._steps = config.steps
        self._tracker = Tracker(box, job, config)

    def begin_at(self, step: int) -> None:
        """What a former attempt wrote beyond `step` is forgotten."""
        if self._path.exists():
            lines = self._path.read_text(encoding="utf-8").splitlines(keepends=True)
            kept = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= step]
            write_atomically(self._path, "".join(kept))

    def add(self, point: Point) -> None:
        record = {**asdict(point), "at": round(time.time(), 3)}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({name: _finite(value) for name, value in record.items()}) + "\n")
        self._tracker.log(asdict(point))
        print(
            f"step {point.step}/{self._steps}  loss {point.loss:.4g}  lr {point.lr:.2g}  "
            f"{point.samples_per_s:,.0f} samples/s",
            flush=True,
        )

    def finish(self, exit_code: int, scores: dict[str, float] | None = None) -> WandbRun:
        """The training has ended so. Safe to repeat: the first end counts."""
        return self._tracker.finish(exit_code, scores)

    def __enter__(self) -> Metrics:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish(0 if error is None else exit_code_of(reason_of(error)))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
