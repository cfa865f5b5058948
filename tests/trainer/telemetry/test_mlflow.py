"""MLflow: the store read back, one run across restarts, its end, servers that cost nothing."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.http_servers import QuietHandler, serving
from tests.trainer.conftest import Box
from tests.trainer.telemetry.mlflow_store import client_of, recorded_runs
from tests.trainer.telemetry.test_metrics import JOB, POINT, point
from tests.waiting import LONGEST_S
from vastrun.contract import layout
from vastrun.contract.outcome import REASONS, Reason
from vastrun.trainer.job.config import MlflowConfig, TrainConfig, WandbConfig
from vastrun.trainer.telemetry.metrics import Metrics
from vastrun.trainer.telemetry.mlflow_tracker import params_of

pytestmark = pytest.mark.needs("mlflow")
RUN = JOB.run_id


def metrics_in(box: Box, mode: str = "offline", run_id: str = RUN) -> Metrics:
    config = TrainConfig(
        wandb=WandbConfig(mode="off"),
        mlflow=MlflowConfig(mode=mode, tags=("mine",)),  # type: ignore[arg-type]
    )
    metrics = Metrics(box.path, replace(JOB, batch=POINT), config)
    metrics.begin_at(0, run_id)
    return metrics


@pytest.mark.slow
def test_figures_options_scores_and_the_end_are_read_back_from_the_store(box: Box) -> None:
    metrics = metrics_in(box)
    for step in (1, 2):
        metrics.add(point(step, loss=0.5 / step))
    metrics.validated(2, 0.25, {"one-step nRMSE (β = 0.4)": 0.125})
    metrics.finish(0, {"rollout_nrmse": 0.0625})

    (run,) = recorded_runs(box.path)
    assert run.info.status == "FINISHED"
    assert [
        (one.step, one.value) for one in client_of(box.path).get_metric_history(run.info.run_id, "loss")
    ] == [(1, 0.5), (2, 0.25)]
    assert run.data.metrics["validation_nrmse"] == 0.25
    assert run.data.metrics["validation.one-step nRMSE _β _ 0.4_"] == 0.125
    assert run.data.metrics["scores.rollout_nrmse"] == 0.0625
    assert run.data.params["train.optim.lr"] == "0.003"
    assert (run.data.tags["mine"], run.data.tags["vastrun.run_id"]) == ("true", RUN)
    assert run.data.tags["vastrun.batch"] == "widths"


@pytest.mark.slow
def test_a_restart_and_a_run_that_continues_go_on_with_the_same_run(box: Box) -> None:
    first = metrics_in(box)
    first.add(point(1))
    first.finish(7)
    again = metrics_in(box)
    again.add(point(2))
    again.finish(0)
    other = metrics_in(box, run_id="of-another-job")
    other.finish(0)
    newest, oldest = recorded_runs(box.path)
    assert (newest.data.tags["vastrun.run_id"], oldest.data.tags["vastrun.run_id"]) == ("of-another-job", RUN)
    history = client_of(box.path).get_metric_history(oldest.info.run_id, "loss")
    assert [one.step for one in history] == [1, 2]
    assert oldest.info.status == "FINISHED"


@pytest.mark.slow
@pytest.mark.parametrize(("reason", "status"), [("diverged", "FAILED"), ("stopped", "KILLED")])
def test_the_run_ends_as_the_training_does(box: Box, reason: Reason, status: str) -> None:
    metrics_in(box).finish(REASONS[reason].exit_code)
    assert recorded_runs(box.path)[0].info.status == status


def test_options_are_flat_parameters() -> None:
    assert params_of({"a": {"b": 1, "c": {}}, "d": None}) == {"a.b": "1", "a.c": "{}", "d": "None"}


@contextmanager
def server(answer: bytes, released: threading.Event) -> Iterator[str]:
    """A server that answers each request with these bytes, once it is released; its address."""

    class Handler(QuietHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass
            released.wait(LONGEST_S)
            with suppress(OSError):
                self.wfile.write(answer)

    with serving(Handler) as url:
        yield url
        released.set()


def ok(body: bytes) -> bytes:
    return (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "answer",
    [
        ok(b'{"experiment": {"experiment_id": "1"}}'),
        ok(b"[1, 2]"),
        ok(b"[" * 100_000),
        b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
        b"\x00\xff",
    ],
    ids=["half an answer", "a list", "deep nesting", "500", "no HTTP"],
)
def test_a_server_that_answers_nonsense_costs_one_line(
    answer: bytes, box: Box, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    released = threading.Event()
    released.set()
    with server(answer, released) as url:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url.replace("//", "//me:secret-4711@"))
        metrics = metrics_in(box, "online")
        for step in (1, 2, 3):
            metrics.add(point(step))
        metrics.finish(0)
    assert len((box.path / layout.METRICS).read_text().splitlines()) == 3
    said = "".join(capfd.readouterr())
    assert said.count("MLflow does not accept figures") == 1
    assert "secret-4711" not in said


@pytest.mark.slow
def test_a_server_that_hangs_does_not_hold_up_the_training(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    with server(b"", released) as url:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
        metrics = metrics_in(box, "online")
        for step in range(1, 2001):
            metrics.add(point(step))  # nothing answers meanwhile
        assert not released.is_set()
        assert len((box.path / layout.METRICS).read_text().splitlines()) == 2000
        metrics.finish(0)  # which waits, but not for ever


def test_without_the_package_a_line_says_so(
    box: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mlflow.py").write_text("raise ImportError('not here')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mlflow", raising=False)
    metrics = metrics_in(box)
    metrics.add(point(1))
    metrics.finish(0)
    assert "MLflow is off: the package mlflow-skinny is not installed" in capfd.readouterr().out
    assert len((box.path / layout.METRICS).read_text().splitlines()) == 1
