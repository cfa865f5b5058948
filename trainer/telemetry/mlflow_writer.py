"""MLflow writer: a process of its own that sends the figures of one training to MLflow.

Neither its import nor a server that is slow, down or hostile costs rank 0 anything: the process has its own
interpreter and a memory limit, and rank 0 ends it when it takes too long. It reads
messages as JSON lines from stdin; the first one is a `MlflowStart`. Without an end message, as after a kill
of rank 0, it leaves the MLflow run open; the supervisor closes it:
`python -m vastrun.trainer.telemetry.mlflow_writer EXIT_CODE`.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Literal

from vastrun.contract import layout
from vastrun.contract.outcome import REASONS
from vastrun.contract.records import read_json, write_json

RUN_TAG = "vastrun.run_id"
"""Tag by which a restart, and a run that continues another, find their MLflow run."""
_MAX_MEMORY_BYTES = 2 << 30
_MAX_METRICS = 1000
"""Max. number of metrics that MLflow accepts in one request."""
_MAX_PENDING = 50_000
"""Metrics kept while the server does not accept them."""
_MAX_TEXT = 500
"""Characters of a parameter or tag."""
_MAX_PARAMS = 100
"""Max. number of parameters that MLflow accepts in one request."""
_RETRY_INTERVAL_S = 30.0
_VARIABLES = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    # A folder can be downloaded and read without a database's packages. MLflow maintains it, and migrates it
    # with `mlflow migrate-filestore`.
    "MLFLOW_ALLOW_FILE_STORE": "true",
}

State = Literal["running", "finished", "failed", "killed"]
"""MLflow's own states, in lower case."""
_INVALID = re.compile(r"[^\w\-. :/]")
"""Characters that MLflow does not accept in a name."""
_RUN_ID = re.compile(r"[0-9a-f]{32}")
_OUT = sys.stdout
"""Output of this process; what MLflow prints, such as a URL with a password, is discarded."""


@dataclass(frozen=True, kw_only=True)
class MlflowStart:
    """First message: what the MLflow run is."""

    key: str
    """Value of `RUN_TAG`."""
    experiment: str
    name: str
    mode: Literal["online", "offline"]
    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class MlflowRecord:
    """`run/mlflow.json`: the MLflow run and its state."""

    id: str
    mode: Literal["online", "offline"]
    state: State
    exit_code: int | None = None
    """Exit code with which it was closed; None: it is open."""


class MlflowWriter:
    """Writes one MLflow run. Figures that the server does not accept are sent again later."""

    def __init__(self, box: Path, mlflow: Any) -> None:
        """`mlflow`: the module `mlflow`."""
        self._box, self._mlflow = box, mlflow
        self._entities: Any = mlflow.entities
        self._faults = faults_of(mlflow)
        self._client: Any = None
        self._record: MlflowRecord | None = None
        self._pending: list[Any] = []
        self._dropped = 0
        self._retry_at = 0.0

    def begin(self, start: MlflowStart) -> None:
        """Continue or create the run; offline, when the server does not answer as MLflow does."""
        try:
            self._open(start, start.mode)
        except self._faults as error:
            if start.mode == "offline":
                raise
            print(f"MLflow continues offline: {type(error).__name__}", file=_OUT, flush=True)
            self._open(start, "offline")

    def add(self, point: Mapping[str, Any]) -> None:
        """Queue the figures of a point, and send what is queued."""
        at_ms, step = int(float(point["at"]) * 1000), int(point["step"])
        for name, value in point.items():
            if name not in ("at", "step"):
                self._pending.append(
                    self._entities.Metric(_INVALID.sub("_", name), float(value), at_ms, step)
                )
        self._dropped += max(0, len(self._pending) - _MAX_PENDING)
        del self._pending[:-_MAX_PENDING]

    def show(self, path: Path) -> None:
        """Add a picture to the run's artifacts."""
        assert self._record is not None
        with suppress(*self._faults):
            self._client.log_artifact(self._record.id, str(path), "evaluation")

    def send(self, *, at_once: bool = False) -> None:
        """Send what is queued; after a fault, only when some time has passed, or `at_once`."""
        assert self._record is not None
        if not at_once and time.monotonic() < self._retry_at:
            return
        try:
            while self._pending:
                self._client.log_batch(self._record.id, metrics=self._pending[:_MAX_METRICS])
                del self._pending[:_MAX_METRICS]
        except self._faults as error:
            if not self._retry_at:
                print(
                    f"MLflow does not accept figures ({type(error).__name__}); trying again",
                    file=_OUT,
                    flush=True,
                )
            self._retry_at = time.monotonic() + _RETRY_INTERVAL_S

    def end(self, exit_code: int, scores: Mapping[str, float]) -> None:
        """Send the rest, and close the run."""
        assert self._record is not None
        now_s = time.time()
        self.add({"at": now_s, "step": 0, **{f"scores.{name}": value for name, value in scores.items()}})
        self.send(at_once=True)
        if unsent := len(self._pending) + self._dropped:
            print(
                f"MLflow: {unsent} figures were not accepted; all are in {layout.METRICS}",
                file=_OUT,
                flush=True,
            )
        close_run(self._box, self._mlflow, self._record, exit_code)

    def _open(self, start: MlflowStart, mode: Literal["online", "offline"]) -> None:
        self._client = client_of(self._box, self._mlflow, mode)
        experiment = self._client.get_experiment_by_name(start.experiment)
        if experiment is None:
            experiment_id = self._client.create_experiment(start.experiment)
        else:
            experiment_id = experiment.experiment_id
        # Only letters, digits and hyphens: an id of a run is quoted safely.
        known = self._client.search_runs([experiment_id], f"tags.`{RUN_TAG}` = '{start.key}'", max_results=1)
        if known:
            run_id = known[0].info.run_id
            self._client.update_run(run_id, status="RUNNING")
        else:
            tags = {RUN_TAG: start.key, **start.tags}
            run_id = self._client.create_run(experiment_id, tags=tags, run_name=start.name).info.run_id
            for params in _chunks(start.params, _MAX_PARAMS):
                entities = [
                    self._entities.Param(_INVALID.sub("_", name), value[:_MAX_TEXT])
                    for name, value in params.items()
                ]
                self._client.log_batch(run_id, params=entities)
        if not _RUN_ID.fullmatch(str(run_id)):
            raise ValueError("the server names no run")
        self._record = MlflowRecord(id=str(run_id), mode=mode, state="running")
        write_json(self._box / layout.MLFLOW, asdict(self._record))


def client_of(box: Path, mlflow: Any, mode: Literal["online", "offline"]) -> Any:
    """Return a client of the user's server, or of the folder in the box."""
    uri = (box / layout.MLFLOW_FILES).absolute().as_uri() if mode == "offline" else None
    return mlflow.MlflowClient(tracking_uri=uri)


def close_run(box: Path, mlflow: Any, record: MlflowRecord, exit_code: int) -> None:
    """Close the MLflow run with the state of that exit code, and write the state."""
    state = state_of(exit_code)
    try:
        client_of(box, mlflow, record.mode).set_terminated(record.id, state.upper())
    except faults_of(mlflow) as error:
        print(
            f"MLflow: the run could not be closed as {state}: {type(error).__name__}", file=_OUT, flush=True
        )
        return
    write_json(box / layout.MLFLOW, asdict(replace(record, state=state, exit_code=exit_code)))


def state_of(exit_code: int) -> State:
    """Return the state of a training that ended with this exit code; a stop request kills it."""
    if exit_code == REASONS["stopped"].exit_code:
        return "killed"
    return "finished" if exit_code == 0 else "failed"


def _chunks(values: Mapping[str, str], size: int) -> Iterator[dict[str, str]]:
    items = list(values.items())
    for begin in range(0, len(items), size):
        yield dict(items[begin : begin + size])


def import_mlflow() -> Any:
    """Return the module `mlflow`, set up for a process that must not wait long. Raises ImportError."""
    os.environ.update({**_VARIABLES, **{name: os.environ[name] for name in _VARIABLES if name in os.environ}})
    import mlflow

    return mlflow


def faults_of(mlflow: Any) -> tuple[type[BaseException], ...]:
    """Return the errors of MLflow, and those of its code for an unexpected response."""
    own: type[BaseException] = mlflow.exceptions.MlflowException
    return (own, OSError, ValueError, TypeError, LookupError, AttributeError, MemoryError, RecursionError)


def write_run(box: Path, mlflow: Any) -> None:
    """Write the run that the messages on stdin describe, until its end message or the end of stdin."""
    writer = MlflowWriter(box, mlflow)
    writer.begin(MlflowStart(**json.loads(sys.stdin.readline())))
    messages: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
    Thread(target=_read, args=(messages,), daemon=True).start()
    while (message := messages.get()) is not None:
        if "exit_code" in message:
            writer.end(message["exit_code"], message["scores"])
            return
        if "picture" in message:
            writer.show(Path(message["picture"]))
        else:
            writer.add(message)
        if messages.empty():  # points that have come meanwhile share a request
            writer.send()


def _read(messages: SimpleQueue[dict[str, Any] | None]) -> None:
    for line in sys.stdin:
        messages.put(json.loads(line))
    messages.put(None)


def main(arguments: list[str]) -> None:
    """Write a run, or close the one of the box with an exit code."""
    box = Path(os.environ["VASTRUN_BOX"])
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    with Path(os.devnull).open("w") as null, redirect_stdout(null), redirect_stderr(null):
        _write_or_close(box, arguments)


def _write_or_close(box: Path, arguments: list[str]) -> None:
    try:
        mlflow = import_mlflow()
    except ImportError:
        print("MLflow is off: the package mlflow-skinny is not installed", file=_OUT, flush=True)
        return
    try:
        if not arguments:
            write_run(box, mlflow)
            return
        record: MlflowRecord = read_json(MlflowRecord, (box / layout.MLFLOW).read_text(encoding="utf-8"))
        close_run(box, mlflow, record, int(arguments[0]))
    except faults_of(mlflow) as error:
        print(f"MLflow is off from here: {type(error).__name__}", file=_OUT, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
