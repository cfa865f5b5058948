"""Ranks that really train: one curve for any number of ranks, exact resumption, a stop that saves."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from tests.trainer.conftest import SMALL, Box, Start
from tests.waiting import eventually
from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.outcome import FileChecksum
from vastrun.contract.reports import read_beat
from vastrun.trainer import data
from vastrun.trainer.checkpoints import verify
from vastrun.trainer.job.config import config_of

pytestmark = pytest.mark.torch

TASK_THAT_KILLS_RANK_1 = """
import os, signal
from pathlib import Path
from tests.waiting import eventually
from vastrun.trainer.data import advection
from vastrun.trainer.data.trajectories import TrajectoryTask

class Deadly(TrajectoryTask):
    def batch(self, step, indices):
        if os.environ["RANK"] == "1" and step == 13:
            eventually(Path(os.environ["VASTRUN_BOX"], "run/checkpoints/step-000010").is_dir)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().batch(step, indices)

def make(config, folder):
    return Deadly(*advection.load(config, folder))

generate = advection.generate
"""


def make_data(box: Box) -> None:
    train = config_of(Job.read(box.path))
    data.generate(train.data[0], box.path / layout.DATA, box.path / layout.CODE)


def tensor_files(box: Box) -> list[FileChecksum]:
    """What the last checkpoint holds of weights and moments."""
    files = verify(box.path / layout.CHECKPOINTS / "step-000020").files
    return [file for file in files if file.path.endswith(".distcp")]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, start_ranks: Start) -> Box:
    """A box in which two ranks trained to the end, with W&B offline."""
    box = Box(tmp_path_factory.mktemp("finished"), wandb={"mode": "offline"}, plots=True)
    make_data(box)
    assert start_ranks(box, 2).wait() == [0, 0], box.log(0)
    return box


@pytest.mark.slow
def test_a_finished_training_leaves_its_evidence(finished: Box) -> None:
    final = finished.json(layout.FINAL)
    assert (final["step"], final["steps"]) == (20, 20)
    assert final["loss"] == finished.losses()[20]
    floors = {f"{name}_nrmse" for name in ("persistence", "spatial_mean", "nearest")}
    assert {"rollout_nrmse", "rollout_nrmse_median", "one_step_nrmse", *floors} < set(final["scores"])
    report = finished.json(f"{layout.EVALUATION}/scores.json")["advection"]
    assert report["parts"]["all"]["rollout"]["nrmse"] == final["scores"]["rollout_nrmse"]
    assert "better than" in finished.log(0)
    assert "advection-fields" in (finished.path / layout.EVALUATION / "report.md").read_text()
    assert [finished.reason(rank)["reason"] for rank in (0, 1)] == ["finished", "finished"]
    assert verify(finished.path / layout.CHECKPOINTS / "step-000020").step == 20
    for rank in (0, 1):
        beat = read_beat(finished.path / layout.HEARTBEATS / f"rank-{rank}")
        assert beat is not None
        assert (beat.step, beat.activity) == (20, "done")


@pytest.mark.slow
def test_offline_wandb_keeps_its_files_in_the_box_and_says_finished(finished: Box) -> None:
    pytest.importorskip("wandb")
    expected = {"id": "calm-heron-3f1a", "mode": "offline", "state": "finished", "url": None}
    assert finished.json(layout.FINAL)["wandb"] == expected
    assert finished.json(layout.WANDB) == expected
    [run] = (finished.path / layout.RUN / "wandb").glob("offline-run-*")
    assert list(run.glob("*.wandb"))
    shown = {path.name.split("_")[0] for path in run.glob("files/media/images/*.png")}
    assert shown == {path.stem for path in (finished.path / layout.EVALUATION).glob("*.png")} != set()


@pytest.mark.slow
def test_one_rank_and_two_ranks_have_the_same_curve(box: Box, finished: Box, start_ranks: Start) -> None:
    make_data(box)
    assert start_ranks(box, 1).wait() == [0], box.log(0)
    one, two = box.losses(), finished.losses()
    assert one.keys() == two.keys() == set(range(1, 21))
    assert one == pytest.approx(two, abs=1e-5)
    assert two[20] < 0.9 * two[1]


@pytest.mark.slow
def test_a_killed_training_resumes_to_the_last_bit(box: Box, finished: Box, start_ranks: Start) -> None:
    (box.path / layout.CODE).mkdir(parents=True)
    (box.path / layout.CODE / "deadly.py").write_text(TASK_THAT_KILLS_RANK_1)
    settings = {"betas": [1.0], "train": 32, "test": 8, "points": 32, "frames": 9}
    box.describe(data={**settings, "task": "deadly:make"})
    make_data(box)
    assert start_ranks(box, 2).wait() == [1, -signal.SIGKILL]
    assert box.reason(0)["reason"] == "communication"
    assert not (box.path / layout.RANKS / "rank-1.json").exists()

    box.describe()
    assert start_ranks(box, 2).wait() == [0, 0], box.log(0)
    assert "resumes after step 10" in box.log(0)
    assert box.losses() == finished.losses()
    assert tensor_files(box) == tensor_files(finished)


def test_sigterm_makes_all_ranks_save_the_same_step_and_leave(box: Box, start_ranks: Start) -> None:
    # A save is under way at every step, also when the signal comes.
    box.describe(steps=1_000_000, checkpoint_every=1, log_every=1000)
    make_data(box)
    running = start_ranks(box, 2)
    beats = [box.path / layout.HEARTBEATS / f"rank-{rank}" for rank in (0, 1)]
    eventually(lambda: all((beat := read_beat(path)) is not None and beat.step > 2 for path in beats))
    stacks = box.path / layout.STACKS / "rank-1.txt"
    pid = running.processes[1].pid
    assert pid is not None
    os.kill(pid, signal.SIGUSR1)
    eventually(lambda: "loop.py" in stacks.read_text())

    os.kill(pid, signal.SIGTERM)
    assert running.wait() == [143, 143]
    reasons = [box.reason(rank) for rank in (0, 1)]
    assert {reason["reason"] for reason in reasons} == {"stopped"}
    assert [reason["asked"] for reason in reasons] == [False, True]
    assert reasons[0]["step"] == reasons[1]["step"] > 2
    latest = box.json(f"{layout.CHECKPOINTS}/latest.json")
    assert latest["step"] == reasons[0]["step"]
    assert verify(box.path / layout.CHECKPOINTS / latest["path"]).step == latest["step"]
    assert not (box.path / layout.FINAL).exists()


def test_a_stop_in_the_final_evaluation_is_heeded_at_once(box: Box, start_ranks: Start) -> None:
    # 5,000 frames to roll out: to finish them takes minutes.
    box.describe(steps=1, data={**SMALL["data"], "frames": 5000, "train": 8, "test": 8})
    make_data(box)
    running = start_ranks(box, 2)
    beat = box.path / layout.HEARTBEATS / "rank-0"
    eventually(lambda: (seen := read_beat(beat)) is not None and seen.activity == "eval")
    pid = running.processes[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    assert running.wait() == [143, 143]
    assert {box.reason(rank)["reason"] for rank in (0, 1)} == {"stopped"}
    assert {box.reason(rank)["exception"] for rank in (0, 1)} == {None}
    assert box.json(f"{layout.CHECKPOINTS}/latest.json")["step"] == 1
    assert not (box.path / layout.FINAL).exists()


def test_missing_data_end_the_rank_with_the_file_that_is_missing(box: Box, start_ranks: Start) -> None:
    assert start_ranks(box, 1).wait() == [1]
    assert box.reason(0)["reason"] == "data"
    assert (
        str(Path(layout.DATA) / "1D_Advection_Sols_beta1.0.hdf5: no such file") in box.reason(0)["exception"]
    )


def test_a_loss_that_is_no_number_ends_the_training_and_names_the_step(box: Box, start_ranks: Start) -> None:
    box.describe(optim={"lr": 1e30, "clip": 1e30, "warmup": 0.0})
    make_data(box)
    assert start_ranks(box, 1).wait() == [1]
    assert box.reason(0)["reason"] == "diverged"
    assert "DivergedError: the loss is nan at step" in box.reason(0)["exception"]
    assert list(box.losses().values())[-1] is None


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_a_training_that_diverges_between_two_reports_saves_nothing_of_it(
    box: Box, start_ranks: Start, strategy: str
) -> None:
    optim = {"lr": 1e30, "clip": 1e30, "warmup": 0.0}
    box.describe(optim=optim, strategy=strategy, log_every=50, checkpoint_every=1, keep_checkpoints=50)
    make_data(box)
    assert start_ranks(box, 2).wait() == [1, 1]
    (said,) = {box.reason(rank)["exception"] for rank in (0, 1)}
    newest = box.json(f"{layout.CHECKPOINTS}/latest.json")
    kept = f"the last good checkpoint is of step {newest['step']}"
    assert re.fullmatch(rf"DivergedError: the (loss|gradient) is (nan|inf) at step \d+; {kept}", said)
    for path in (box.path / layout.CHECKPOINTS).glob("step-*"):
        dcp_to_torch_save(path, box.path / "whole.pt")
        saved = torch.load(box.path / "whole.pt", weights_only=True)
        assert all(value.isfinite().all() for value in flattened(saved)), path.name


def flattened(saved: Any) -> Iterator[torch.Tensor]:
    """All tensors in it."""
    for value in saved.values():
        yield from [value] if isinstance(value, torch.Tensor) else flattened(value)
