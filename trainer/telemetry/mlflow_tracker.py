"""MLflow tracking: hand the figures of rank 0 to the process that sends them (`mlflow_writer.py`)."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal

from vastrun.contract.job import Job
from vastrun.trainer.job.config import MlflowConfig, TrainConfig
from vastrun.trainer.telemetry.mlflow_writer import MlflowStart
from vastrun.trainer.telemetry.tracker import config_of

_FINISH_S = 60.0
"""Seconds for the last figures and the close; then the writer is killed."""
_KILL_S = 5.0


class MlflowTracker:
    """One MLflow run. No method waits for MLflow, but `finish`, and that only for a limited time."""

    def __init__(self, box: Path, job: Job, config: TrainConfig, run_id: str) -> None:
        """`run_id`: run of vastrun whose MLflow run this is: its own, or one that it continues."""
        self._queue: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self._is_off = False
        start = MlflowStart(
            key=run_id,
            experiment=config.mlflow.experiment,
            name=f"{job.name} {run_id}",
            mode=_mode_of(config.mlflow),
            tags=_tags_of(config.mlflow, job),
            params=params_of(config_of(config, job.batch)),
        )
        try:
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                [sys.executable, "-m", "vastrun.trainer.telemetry.mlflow_writer"],
                stdin=subprocess.PIPE,
                env={**os.environ, "VASTRUN_BOX": str(box)},
            )
        except OSError as error:
            print(f"MLflow is off: {error.strerror}", flush=True)
            self._process = None
        self._queue.put(asdict(start))
        self._thread = threading.Thread(target=self._feed, name="mlflow", daemon=True)
        self._thread.start()

    def log(self, point: dict[str, Any], at: float) -> None:
        """Queue the finite figures of a point. `at`: epoch seconds."""
        finite = {name: value for name, value in point.items() if math.isfinite(value)}
        self._queue.put({**finite, "at": at})

    def show(self, pictures: Sequence[Path]) -> None:
        """Queue pictures."""
        for picture in pictures:
            self._queue.put({"picture": str(picture)})

    def finish(self, exit_code: int, scores: dict[str, float] | None = None) -> None:
        """End the MLflow run with the exit code of the training. Safe to repeat: the first call counts."""
        if self._process is None or self._is_off:
            return
        self._is_off = True
        finite = {name: value for name, value in (scores or {}).items() if math.isfinite(value)}
        self._queue.put({"exit_code": exit_code, "scores": finite})
        self._queue.put(None)
        try:
            self._process.wait(_FINISH_S)
        except subprocess.TimeoutExpired:
            print("MLflow did not finish in time; all figures are in run/metrics.jsonl", flush=True)
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_KILL_S)

    def _feed(self) -> None:
        """Write the queue to the process; it may read slowly, or be gone."""
        if self._process is None or self._process.stdin is None:
            return
        with suppress(OSError, ValueError), self._process.stdin as pipe:
            while (message := self._queue.get()) is not None:
                pipe.write(json.dumps(message).encode() + b"\n")
                pipe.flush()


def params_of(config: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Return the options as MLflow's parameters: flat, with dots, as text."""
    params: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, dict) and value:
            params |= params_of(value, f"{prefix}{key}.")
        else:
            params[f"{prefix}{key}"] = str(value)
    return params


def _mode_of(config: MlflowConfig) -> Literal["online", "offline"]:
    if config.mode in ("online", "offline"):
        return config.mode
    return "online" if os.environ.get("MLFLOW_TRACKING_URI") else "offline"


def _tags_of(config: MlflowConfig, job: Job) -> dict[str, str]:
    batch = {"vastrun.batch": job.batch.name} if job.batch else {}
    return {**dict.fromkeys(config.tags, "true"), "vastrun.job": job.name, **batch}
