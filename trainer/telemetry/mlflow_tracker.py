"""MLflow tracking: a thread of rank 0 sends its figures with MLflow's own client, within time limits."""

import math
import os
import re
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.outcome import REASONS
from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.telemetry.tracker import config_of

_STATUS_OF = {0: "FINISHED", REASONS["stopped"].exit_code: "KILLED"}
_RUN_TAG = "vastrun.run_id"
_VARIABLES = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",  # other messages may show the server's URL with its password
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ALLOW_FILE_STORE": "true",  # it needs no database's packages, and MLflow migrates it to one
}


class MlflowTracker:
    """One MLflow run. No method waits for MLflow, but `finish`, and that only for a limited time."""

    def __init__(self, box: Path, job: Job, config: TrainConfig, run_id: str) -> None:
        """`run_id`: run of vastrun whose MLflow run this is: its own, or one that it continues."""
        self._job, self._config, self._run_id = job, config, run_id
        is_auto = config.mlflow.mode == "auto" and "MLFLOW_TRACKING_URI" in os.environ
        is_online = config.mlflow.mode == "online" or is_auto
        self._uri = None if is_online else (box / layout.MLFLOW_FILES).absolute().as_uri()
        self._queue: SimpleQueue[list[tuple[str, float, int, int]] | Path | int] = SimpleQueue()
        os.environ.update({**_VARIABLES, **os.environ})
        self._thread = threading.Thread(target=self._work, name="mlflow", daemon=True)
        self._thread.start()

    def log(self, point: dict[str, Any], at: float) -> None:
        """Queue the finite figures of a point. `at`: epoch seconds."""
        step, at_ms = int(point.get("step", 0)), int(at * 1000)
        finite = [(name, float(value)) for name, value in point.items() if math.isfinite(value)]
        self._queue.put([(_accepted(name), value, at_ms, step) for name, value in finite if name != "step"])

    def show(self, pictures: Sequence[Path]) -> None:
        """Queue pictures."""
        for picture in pictures:
            self._queue.put(picture)

    def finish(self, exit_code: int, scores: dict[str, float] | None) -> None:
        """End the MLflow run with the exit code of the training."""
        self.log({f"scores.{name}": value for name, value in (scores or {}).items()}, time.time())
        self._queue.put(exit_code)
        self._thread.join(60.0)
        if self._thread.is_alive():
            print(f"MLflow did not finish in time; all figures are in {layout.METRICS}", flush=True)

    def _work(self) -> None:
        try:
            import mlflow
        except ImportError:
            print("MLflow is off: the package mlflow-skinny is not installed", flush=True)
            return
        own = mlflow.exceptions.MlflowException
        # Its code raises any of the others after an unexpected response.
        faults = (own, OSError, ValueError, TypeError, LookupError, AttributeError, MemoryError, RuntimeError)
        message, opened, has_warned, metrics = None, None, False, []
        while not isinstance(message, int):
            message = self._queue.get()
            if isinstance(message, list):
                metrics += [mlflow.entities.Metric(*figure) for figure in message]
                if not self._queue.empty():  # points that have come meanwhile share a request
                    continue
            try:
                client, run = opened = opened or self._open(mlflow)
                client.log_batch(run, metrics=metrics)
                metrics = []
                if isinstance(message, Path):
                    client.log_artifact(run, str(message), "evaluation")
                elif isinstance(message, int):
                    client.set_terminated(run, _STATUS_OF.get(message, "FAILED"))
            except faults as error:
                del metrics[:-500_000]
                if not has_warned:
                    has_warned = True
                    print(f"MLflow does not accept figures ({type(error).__name__})", flush=True)

    def _open(self, mlflow: Any) -> tuple[Any, str]:
        """Return a client and the id of the run, which a restart continues."""
        client, name = mlflow.MlflowClient(tracking_uri=self._uri), self._config.mlflow.experiment
        found = client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else client.create_experiment(name)
        # Only letters, digits and hyphens: an id of a run is quoted safely.
        for known in client.search_runs([experiment], f"tags.`{_RUN_TAG}` = '{self._run_id}'", max_results=1):
            client.update_run(known.info.run_id, status="RUNNING")
            return client, known.info.run_id
        tags = {_RUN_TAG: self._run_id, "vastrun.job": self._job.name}
        tags |= {"vastrun.batch": self._job.batch.name} if self._job.batch else {}
        tags |= dict.fromkeys(self._config.mlflow.tags, "true")
        title = f"{self._job.name} {self._run_id}"
        run: str = client.create_run(experiment, tags=tags, run_name=title).info.run_id
        if not run:
            raise ValueError("the server names no run")
        options = params_of({**config_of(self._config, self._job.batch), "code": self._job.code})
        params = [mlflow.entities.Param(_accepted(key), value[:500]) for key, value in options.items()]
        client.log_batch(run, params=params)
        return client, run


def _accepted(name: str) -> str:
    """Replace the characters that MLflow does not accept in a name."""
    return re.sub(r"[^\w\-. :/]", "_", name)


def params_of(config: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Return the options as MLflow's parameters: flat, with dots, as text."""
    params: dict[str, str] = {}
    for key, value in config.items():
        inner = params_of(value, f"{prefix}{key}.") if isinstance(value, dict) else {}
        params |= inner or {f"{prefix}{key}": str(value)}
    return params
