"""Metrics and W&B: lines that can be read, an end that is true, and no network without a key."""

import json
import math
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.conftest import Box
from tests.waiting import eventually
from vastrun.contract import layout
from vastrun.contract.job import Job, JobBatch
from vastrun.contract.program import ProgramSpec
from vastrun.trainer.job.config import TrainConfig, WandbConfig, wandb_mode
from vastrun.trainer.job.data_config import DataConfig
from vastrun.trainer.telemetry.figures import Figures, RankMemory, Throughput
from vastrun.trainer.telemetry.gpus import Sample, figures_of
from vastrun.trainer.telemetry.metrics import Metrics, MetricsPoint
from vastrun.trainer.telemetry.tracker import config_of, tags_of

_BLOCK = 32768
_HEADER = struct.Struct("<IHB")
_FULL, _LAST = 1, 4


def recorded_run(folder: Path) -> Any:
    """The run in the folder `wandb`, as `wandb sync` would tell it to the server.

    W&B's own process writes the file, and may do so after the run has ended for everybody else.
    """
    (file,) = folder.glob("offline-run-*/*.wandb")
    return eventually(lambda: _run_in(file), what=f"a run in {file}")


def _run_in(file: Path) -> Any:
    from wandb.proto import wandb_internal_pb2

    for data in _records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "run":
            return record.run
    return None


def _records(content: bytes) -> Iterator[bytes]:
    at, whole = 7, b""
    while at + _HEADER.size <= len(content):
        left = _BLOCK - at % _BLOCK
        if left < _HEADER.size:  # no header fits into the rest of the block
            at += left
            continue
        _, length, kind = _HEADER.unpack_from(content, at)
        whole += content[at + _HEADER.size : at + _HEADER.size + length]
        at += _HEADER.size + length
        if kind in (_FULL, _LAST):
            yield whole
            whole = b""


PROGRAM = ProgramSpec(kind="train")
JOB = Job(run_id="calm-heron-3f1a", name="small", ranks=1, program=PROGRAM, stall_s=60, start_s=60)


POINT = JobBatch(name="widths", values={"train.optim.lr": 0.003, "limits.hours": 2, "seed": [1, 2]})


def metrics_in(box: Box, mode: str = "off", batch: JobBatch | None = None) -> Metrics:
    config = TrainConfig(wandb=WandbConfig(mode=mode, tags=("mine",)))
    return Metrics(box.path, replace(JOB, batch=batch), config)


def point(step: int, loss: float = 0.5, mfu: float | None = None, **known: Any) -> MetricsPoint:
    return MetricsPoint(
        step=step,
        loss=loss,
        grad_norm=1.0,
        at_s=time.monotonic(),
        throughput=Throughput(samples_per_s=100.0, mfu=mfu),
        figures=Figures(lr=1e-3, **known),
    )


def lines_of(box: Box) -> list[dict]:
    return [json.loads(line) for line in (box.path / layout.METRICS).read_text().splitlines()]


def test_a_point_is_a_line_that_says_when(box: Box) -> None:
    metrics = metrics_in(box)
    metrics.add(point(10))
    (line,) = lines_of(box)
    assert (line["step"], line["loss"], line["lr"]) == (10, 0.5, 1e-3)
    assert line["at"] > 1.7e9


def test_what_is_not_known_here_is_not_in_the_line(box: Box) -> None:
    metrics = metrics_in(box)
    metrics.add(point(10, mfu=0.4, memory=RankMemory(peak_memory_mib=512.0)))
    (line,) = lines_of(box)
    known = {"step", "loss", "grad_norm", "lr", "samples_per_s", "mfu", "peak_memory_mib", "at"}
    assert set(line) == known


def test_the_loss_of_each_task_is_in_line_and_log(box: Box, capsys: pytest.CaptureFixture[str]) -> None:
    data = (DataConfig(), DataConfig(task="darcy"))
    metrics = Metrics(box.path, JOB, TrainConfig(data=data, wandb=WandbConfig(mode="off")))
    metrics.add(replace(point(10), task_losses={"advection": 0.25, "darcy": 0.75}))
    (line,) = lines_of(box)
    assert (line["loss"], line["loss.advection"], line["loss.darcy"]) == (0.5, 0.25, 0.75)
    assert "loss 0.5 (advection 0.25, darcy 0.75)  lr 0.001" in capsys.readouterr().out


def test_each_of_several_gpus_has_figures_by_its_number(box: Box) -> None:
    busy = Sample(load=0.9, memory_mib=800.0, power_w=300.0, temperature_c=60.0)
    idle = replace(busy, load=0.1, power_w=80.0)
    metrics = metrics_in(box)
    metrics.add(point(10, gpus=figures_of([[busy, idle]])))
    (line,) = lines_of(box)
    assert (line["gpu_load"], line["gpu0_load"], line["gpu1_load"]) == (0.5, 0.9, 0.1)
    assert (line["gpu_power_w"], line["gpu1_power_w"], line["gpu1_memory_mib"]) == (380, 80, 800)
    assert "each" not in line and "gpus" not in line


def test_a_loss_that_is_no_number_is_null(box: Box) -> None:
    metrics = metrics_in(box)
    metrics.add(point(10, math.nan))
    metrics.add(point(20, math.inf))
    assert [line["loss"] for line in lines_of(box)] == [None, None]


def test_a_resumed_run_forgets_what_came_after_its_checkpoint(box: Box) -> None:
    metrics = metrics_in(box)
    for step in (10, 20, 30):
        metrics.add(point(step))
    with (box.path / layout.METRICS).open("a") as file:
        file.write('{"step": 40, "lo')
    metrics_in(box).begin_at(20, JOB.run_id)
    assert [line["step"] for line in lines_of(box)] == [10, 20]


@pytest.mark.parametrize(
    ("config", "key", "mode"),
    [
        ("auto", "secret", "online"),
        ("auto", "", "offline"),
        ("offline", "secret", "offline"),
        ("online", "", "online"),
        ("off", "secret", "off"),
    ],
)
def test_data_leave_the_box_only_with_a_key_or_when_told(config: str, key: str, mode: str) -> None:
    assert wandb_mode(config, {"WANDB_API_KEY": key}) == mode


@pytest.mark.slow
def test_a_failed_training_fails_on_wandb(box: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(ZeroDivisionError), metrics_in(box, "offline") as metrics:
        metrics.add(point(10))
        raise ZeroDivisionError
    assert box.json(layout.WANDB)["state"] == "failed"
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(("exit_code", "state"), [(0, "finished"), (1, "failed")])
def test_a_training_without_wandb_still_says_how_it_ended(box: Box, exit_code: int, state: str) -> None:
    with metrics_in(box, "off") as metrics:
        run = metrics.finish(exit_code)
    assert (run.mode, run.state) == ("off", state)


@pytest.mark.slow
def test_wandb_without_a_way_in_goes_on_offline(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_API_KEY", "not-a-key")
    with metrics_in(box, "online") as metrics:
        metrics.add(point(10))
        run = metrics.finish(0)
    assert (run.mode, run.state) == ("offline", "finished")
    assert [line["step"] for line in lines_of(box)] == [10]


def test_a_box_that_wandb_cannot_write_to_does_not_end_the_training(box: Box) -> None:
    pytest.importorskip("wandb")
    (box.path / layout.RUN).mkdir()
    (box.path / layout.RUN / "wandb").write_text("in the way")
    with metrics_in(box, "offline") as metrics:
        metrics.add(point(10))
        assert metrics.finish(0).state == "crashed"


@pytest.mark.parametrize("mode", ["offline", "online"])
def test_without_wandb_s_package_the_training_goes_on(
    box: Box, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "a-key")
    monkeypatch.setitem(sys.modules, "wandb", None)
    with metrics_in(box, mode) as metrics:
        metrics.add(point(10))
        run = metrics.finish(0)
    assert (run.mode, run.state) == ("off", "finished")
    assert "W&B is off: the package wandb is not installed\n" in capsys.readouterr().out
    assert [line["step"] for line in lines_of(box)] == [10]


def test_tensorboard_has_the_same_figures_and_none_of_steps_that_are_done_again(box: Box) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for first, last in ((1, 4), (3, 6)):  # stopped after step 4, begun again after step 2
        metrics = Metrics(box.path, JOB, TrainConfig(wandb=WandbConfig(mode="off"), tensorboard=True))
        metrics.begin_at(first - 1, JOB.run_id)
        for step in range(first, last + 1):
            metrics.add(point(step, loss=float(first)))
        metrics.finish(0)
    events = EventAccumulator(str(box.path / layout.TENSORBOARD)).Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [
        *((1, 1.0), (2, 1.0)),
        *((step, 3.0) for step in range(3, 7)),
    ]
    assert "samples_per_s" in events.Tags()["scalars"]


def test_without_tensorboard_s_package_the_training_goes_on(
    box: Box, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    metrics = Metrics(box.path, JOB, TrainConfig(wandb=WandbConfig(mode="off"), tensorboard=True))
    metrics.begin_at(0, JOB.run_id)
    metrics.add(point(10))
    assert "TensorBoard is off: the package tensorboard is not installed\n" in capsys.readouterr().out
    assert [line["step"] for line in lines_of(box)] == [10]


@pytest.mark.slow
def test_the_runs_of_a_batch_are_a_group_with_the_values_of_their_points(box: Box) -> None:
    pytest.importorskip("wandb")
    with metrics_in(box, "offline", POINT) as metrics:
        metrics.add(point(10))
        metrics.finish(0, {"rollout_nrmse": 0.25})
    said = recorded(box)
    assert (said.run_id, said.display_name) == ("calm-heron-3f1a", "small calm-heron-3f1a")
    assert (said.run_group, list(said.tags)) == ("widths", ["mine", "widths"])
    config = {entry.key: json.loads(entry.value_json) for entry in said.config.update}
    assert config["train"] == {"optim": {"lr": 0.003}}
    assert config["limits"]["hours"] == 2 and "compile_s" in config["limits"]
    assert config["seed"] == [1, 2]


def test_a_run_of_no_batch_is_of_no_group(box: Box) -> None:
    pytest.importorskip("wandb")
    with metrics_in(box, "offline") as metrics:
        metrics.add(point(10))
        metrics.finish(0)
    assert (recorded(box).run_group, list(recorded(box).tags)) == ("", ["mine"])


def recorded(box: Box) -> Any:
    return recorded_run(box.path / layout.RUN / "wandb")


def test_a_point_changes_no_option_of_the_training_and_wins_over_what_is_none() -> None:
    train = TrainConfig()
    assert config_of(train, None) == json.loads(json.dumps(asdict(train)))
    values = {"steps.x": 1, "train.steps": 7}
    config = config_of(train, JobBatch(name="b", values=values))
    assert (config["steps"], config["train"]) == ({"x": 1}, {"steps": 7})
    assert tags_of(WandbConfig(tags=("b", "c")), JobBatch(name="b")) == ("b", "c")


def test_a_batch_with_a_long_name_is_a_tag_that_wandb_takes() -> None:
    batch = JobBatch(name="w" * 80 + ",x")
    assert tags_of(WandbConfig(), batch) == ("w" * 64,)
    assert JobBatch(name="a,b").tag == "a b"
