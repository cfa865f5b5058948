"""MLflow's own server on a database: what it shows of a run, which continues and ends as the training did."""

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
from tests.trainer.telemetry.test_mlflow import RUN, metrics_in
from tests.waiting import LONGEST_S, eventually
from vastrun.contract import layout
from vastrun.contract.outcome import REASONS

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
    program = [PROGRAM, "server", *store, *artifacts, *f"--host 127.0.0.1 --port {port} --workers 1".split()]
    # Without what the test puts before the client's packages.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"
    with (tmp_path / "server.log").open("w") as log:
        process = subprocess.Popen(
            program, stdout=log, stderr=log, cwd=tmp_path, env=environ, start_new_session=True
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


def test_a_restart_continues_the_run_of_a_killed_rank(box: Box, url: str) -> None:
    program = (
        "import sys; from pathlib import Path; "
        "from tests.trainer.telemetry.test_mlflow_server import killed; killed(Path(sys.argv[1]))"
    )
    words = [sys.executable, "-c", program, str(box.path)]
    assert subprocess.run(words, timeout=3 * LONGEST_S, check=False).returncode == -signal.SIGKILL
    assert shown(url)[1].info.status == "RUNNING"

    again = metrics_in(box, "online")
    again.add(point(2))
    again.finish(REASONS["stopped"].exit_code)
    client, run = shown(url)
    assert run.info.status == "KILLED"
    assert [one.step for one in client.get_metric_history(run.info.run_id, "loss")] == [1, 2]


def killed(path: Path) -> None:
    """Write a point, wait until the server has it, and kill this process."""
    box = Box.__new__(Box)
    box.path = path
    metrics = metrics_in(box, "online")
    metrics.add(point(1))

    import mlflow

    client = mlflow.MlflowClient(tracking_uri=os.environ["MLFLOW_TRACKING_URI"])

    def has_it() -> bool:
        experiment = client.get_experiment_by_name("vastrun")
        runs = client.search_runs([experiment.experiment_id]) if experiment else []
        return any("loss" in run.data.metrics for run in runs)

    eventually(has_it, what="the point on the server")
    os.kill(os.getpid(), signal.SIGKILL)


def test_offline_records_move_into_a_database_as_the_page_says(box: Box, tmp_path: Path) -> None:
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
