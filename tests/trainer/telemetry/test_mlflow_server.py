"""MLflow's own server on a database: what it shows of a run, which continues and ends as the training did."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port
from tests.trainer.conftest import Box
from tests.trainer.telemetry.test_metrics import point
from tests.trainer.telemetry.test_mlflow import RUN, metrics_in, record_of
from tests.waiting import LONGEST_S, eventually
from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.outcome import REASONS
from vastrun.contract.records import read_as
from vastrun.onstart.supervision.evidence import finish_mlflow_run

PROGRAM = os.environ.get("MLFLOW_SERVER", "")
"""The program `mlflow` of an installation that can serve, which `mlflow-skinny` cannot."""
pytestmark = [
    pytest.mark.needs("mlflow"),
    pytest.mark.slow,
    pytest.mark.skipif(not PROGRAM, reason="no server of MLflow: make mlflow"),
]


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server on SQLite, to which trainings report."""
    port = free_port()
    store = ("--backend-store-uri", f"sqlite:///{tmp_path}/mlflow.db")
    artifacts = ("--artifacts-destination", str(tmp_path / "artifacts"), "--serve-artifacts")
    # Several workers have a watcher, which kills one that a busy computer keeps from answering.
    program = [
        PROGRAM,
        "server",
        *store,
        *artifacts,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--workers",
        "1",
    ]
    # Without what the test puts before the client's packages.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"
    with (tmp_path / "server.log").open("w") as log:
        process = subprocess.Popen(
            program,
            stdout=log,
            stderr=log,
            cwd=tmp_path,
            env=environ,
            start_new_session=True,
        )
    try:
        eventually(lambda: _is_healthy(port), within_s=3 * LONGEST_S, what="MLflow's server")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _is_healthy(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def shown(url: str) -> tuple[Any, Any]:
    """A client of the server, and its only run."""
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=url)
    experiment = client.get_experiment_by_name("vastrun")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    return client, run


def test_a_server_shows_figures_options_scores_pictures_and_the_end(box: Box, url: str) -> None:
    metrics = metrics_in(box, "online")
    for step in (1, 2, 3):
        metrics.add(point(step, loss=0.5 / step))
    metrics.validated(3, 0.25, {"one-step nRMSE (β = 0.4)": 0.125})
    picture = box.path / "frames.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n")
    metrics.show(3, [picture])
    metrics.finish(0, {"rollout_nrmse": 0.0625})

    client, run = shown(url)
    assert record_of(box) == {"id": run.info.run_id, "mode": "online", "state": "finished", "exit_code": 0}
    assert run.info.status == "FINISHED"
    history = [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, "loss")]
    assert history == [(1, 0.5), (2, 0.25), (3, pytest.approx(0.5 / 3))]
    assert run.data.metrics["validation.one-step nRMSE _β _ 0.4_"] == 0.125
    assert run.data.metrics["scores.rollout_nrmse"] == 0.0625
    assert run.data.params["train.optim.lr"] == "0.003"
    assert run.data.tags["vastrun.run_id"] == RUN
    assert [one.path for one in client.list_artifacts(run.info.run_id, "evaluation")] == [
        "evaluation/frames.png"
    ]
    assert not (box.path / layout.MLFLOW_FILES).exists()


def test_the_run_of_a_killed_rank_is_closed_and_a_restart_continues_it(box: Box, url: str) -> None:
    assert apart("killed", box) == -signal.SIGKILL
    assert shown(url)[1].info.status == "RUNNING"
    assert apart("closed", box) == 0
    assert shown(url)[1].info.status == "FAILED"

    again = metrics_in(box, "online")
    again.add(point(2))
    again.finish(REASONS["stopped"].exit_code)
    client, run = shown(url)
    assert run.info.status == "KILLED"
    assert [one.step for one in client.get_metric_history(run.info.run_id, "loss")] == [1, 2]


def apart(function: str, box: Box) -> int:
    """Call a function of this file in a process of its own. Return the exit code."""
    program = (
        "import sys; from pathlib import Path; import tests.trainer.telemetry.test_mlflow_server as here; "
        "getattr(here, sys.argv[1])(Path(sys.argv[2]))"
    )
    words = [sys.executable, "-c", program, function, str(box.path)]
    return subprocess.run(words, timeout=3 * LONGEST_S, check=False).returncode


def closed(path: Path) -> None:
    """Close the run as a supervisor does, which kills every process that was started below it."""
    job = read_as(Job, {**json.loads((path / layout.JOB).read_text()), "ranks": 1})
    (path / layout.RAW_LOGS).mkdir(parents=True, exist_ok=True)
    finish_mlflow_run(path, job, REASONS["signal"].exit_code)


def killed(path: Path) -> None:
    """Write a point, wait until the server has it, and kill this process."""
    box = Box.__new__(Box)
    box.path = path
    metrics = metrics_in(box, "online")
    metrics.add(point(1))

    def has_it() -> bool:
        return (path / layout.MLFLOW).exists() and "loss" in shown(os.environ["MLFLOW_TRACKING_URI"])[
            1
        ].data.metrics

    eventually(has_it, what="the point on the server")
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_was_recorded_offline_is_moved_into_a_database_as_the_page_says(
    box: Box, tmp_path: Path
) -> None:
    metrics = metrics_in(box)
    metrics.add(point(1))
    metrics.finish(0)
    target = f"sqlite:///{tmp_path}/moved.db"
    words = ("migrate-filestore", "--source", str(box.path / layout.MLFLOW_FILES), "--target", target)
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [PROGRAM, *words], capture_output=True, text=True, timeout=3 * LONGEST_S, env=environ, check=False
    )
    assert done.returncode == 0, done.stderr
    program = (
        "import mlflow, sys; client = mlflow.MlflowClient(tracking_uri=sys.argv[1]); "
        "experiment = client.get_experiment_by_name('vastrun'); "
        "(run,) = client.search_runs([experiment.experiment_id]); "
        "print(run.info.status, run.data.metrics['loss'])"
    )
    python = str(Path(PROGRAM).with_name("python"))
    read = subprocess.run(
        [python, "-c", program, target],
        capture_output=True,
        text=True,
        timeout=3 * LONGEST_S,
        env=environ,
        check=True,
    )
    assert read.stdout.strip().splitlines()[-1] == "FINISHED 0.5"
