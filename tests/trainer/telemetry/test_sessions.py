"""What telemetry takes from a session: its W&B run, which others may have begun, and what its model costs."""

import json
import math
import shutil
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.trainer.conftest import together
from tests.trainer.sessions import begin, prepare
from vastrun.contract import layout
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.errors import DivergedError
from vastrun.trainer.telemetry.figures import Instruments, max_samples_per_s
from vastrun.trainer.telemetry.metrics import Metrics
from vastrun.trainer.telemetry.reports import Readings, Reports

pytestmark = pytest.mark.torch


@pytest.mark.slow
def test_the_wandb_run_is_that_of_the_training_that_is_continued(tmp_path: Path) -> None:
    assert together(continue_often, 1, prepare(tmp_path / "box")) == [["first", "first", "first", "fourth"]]


def continue_often(ranks: Ranks, box: Path) -> list[str]:
    """The W&B runs of a training, of two that continue it one after the other, and of one that does not.

    The last is given a checkpoint of theirs all the same: a box may name any W&B run in what it sends home.
    """
    job = json.loads((box / layout.JOB).read_text())
    runs: list[str] = []
    chain = {"first": [], "second": ["first"], "third": ["second", "first"], "fourth": ["of-somebody-else"]}
    for step, (run_id, continues) in enumerate(chain.items(), start=1):
        (box / layout.JOB).write_text(json.dumps(job | {"run_id": run_id, "continues": continues}))
        session = begin(ranks, box, {})
        runs.append(session.wandb_id)
        session.save(step, None, durable=True)
        shutil.rmtree(box / layout.RESUME, ignore_errors=True)
        (box / layout.CHECKPOINTS).rename(box / layout.RESUME)
    return runs


def test_figures_know_the_model_of_the_session_and_the_gpus_that_it_would_fill(tmp_path: Path) -> None:
    ((fp32, bf16, unknown, known),) = together(read_figures, 1, prepare(tmp_path / "box"))
    assert bf16 / fp32 == pytest.approx(989.4 / 66.9)
    assert unknown is None
    assert known >= {"lr", "samples_per_s", "memory"}


def read_figures(ranks: Ranks, box: Path) -> tuple[float | None, float | None, float | None, set[str]]:
    """What an H200 could do at most in two precisions, what an unknown GPU could, and what is known here."""
    single, half = begin(ranks, box, {}), begin(ranks, box, {"precision": "bf16"})
    instruments = Instruments(single, began_s=0.0)
    figures = {**vars(instruments.read(1)), **vars(instruments.throughput(1, at_s=0.5))}
    return (
        max_samples_per_s(single, "NVIDIA H200"),
        max_samples_per_s(half, "NVIDIA H200"),
        max_samples_per_s(single, "NVIDIA Z1"),
        {name for name, value in figures.items() if value is not None},
    )


class DelayedDevice:
    """A device that computes later than the host asks for it, as a GPU does."""

    late = True

    def __init__(self, step_s: float = 0.0) -> None:
        self.began_s = time.monotonic()
        self._step_s = step_s
        self._busy_until_s = self.began_s

    def compute(self, steps: int) -> None:
        """Queue the work of `steps` steps."""
        self._busy_until_s += steps * self._step_s

    def send(self, values: Tensor) -> tuple[list[float], float]:
        return values.tolist(), self._busy_until_s

    def receive(self, sent: tuple[list[float], float]) -> tuple[list[float], float]:
        return sent


STEP_S = 0.01
EVERY = 50


def report(reports: Reports, step: int, *, loss: float = 0.5) -> None:
    """Report the values after `step` steps, the last of which had this loss."""
    losses = torch.tensor([loss]), torch.tensor(1.0)
    reports.add(step - 1, losses)
    reports.report(step, losses)


def test_the_speed_is_that_of_the_device_also_where_reports_come_late(tmp_path: Path) -> None:
    (lines,) = together(report_late_and_measure, 1, prepare(tmp_path / "box", batch=8))
    assert [line["step"] for line in lines] == [1, 50, 100, 150]
    first, *_, last = lines
    steps_per_s = (last["step"] - first["step"]) / (last["at"] - first["at"])
    assert steps_per_s == pytest.approx(1 / STEP_S, rel=0.01)
    assert [line["samples_per_s"] for line in lines] == pytest.approx([8 / STEP_S] * 4, rel=0.01)


def report_late_and_measure(ranks: Ranks, box: Path) -> list[dict[str, float]]:
    """Report a training whose steps take 10 ms on the device and nothing on the host."""
    session, device = begin(ranks, box, {"batch": 8}), DelayedDevice(STEP_S)
    with Metrics(box, session.job, session.config) as metrics:
        reports, done = Reports(session, metrics, Readings(device)), 0
        for step in (1, EVERY, 2 * EVERY, 3 * EVERY):
            device.compute(step - done)
            report(reports, step)
            done = step
        reports.flush()
    return [json.loads(line) for line in (box / layout.METRICS).read_text().splitlines()]


def test_a_report_that_comes_late_is_of_its_own_step_and_there_before_a_checkpoint(tmp_path: Path) -> None:
    (lines,) = together(report_late, 1, prepare(tmp_path / "box"))
    assert lines == [[], [1], [1, 2], [1, 2], "the loss is nan at step 3; no checkpoint was saved"]


def report_late(ranks: Ranks, box: Path) -> list[list[int] | str]:
    """The steps that are in the metrics after each report, and what the last loss came to."""
    session, path, seen = begin(ranks, box, {}), box / layout.METRICS, []

    def told() -> list[int]:
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line)["step"] for line in lines]

    with Metrics(box, session.job, session.config) as metrics:
        reports = Reports(session, metrics, Readings(DelayedDevice()))
        for step in (1, 2):
            report(reports, step)
            seen.append(told())
        reports.flush()
        seen.append(told())
        report(reports, 3, loss=math.nan)
        seen.append(told())
        try:
            reports.flush()
        except DivergedError as error:
            seen.append(str(error))
    return seen
