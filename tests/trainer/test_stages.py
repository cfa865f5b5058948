"""Several stages in one box: each from the weights of the one before, to the same bits after any kill."""

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.conftest import Box, Start
from tests.trainer.test_training import make_data
from vastrun.contract import layout
from vastrun.contract.checkpoint_folder import newest_first, verify
from vastrun.contract.outcome import FileChecksum
from vastrun.contract.reports import read_beat

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(300)]

STAGES = ("operator", "refine", "distill")
STEPS = {"operator": 20, "refine": 12, "distill": 12}
ENDS = (20, 32, 44)
DATA = {"betas": [1.0], "train": 32, "test": 8, "points": 32, "frames": 9}
COMMON: dict[str, Any] = {"checkpoint_every": 4, "data": DATA}
THREE = {
    **COMMON,
    "stages": list(STAGES),
    "stage_options": {"refine": {"steps": 12, "optim": {"lr": 0.001}}, "distill": {"steps": 12}},
}
KILLS_IN_EACH_STAGE = """
import json, os, signal
from pathlib import Path
from tests.waiting import eventually
from vastrun.trainer.data import advection
from vastrun.trainer.data.trajectories import TrajectoryTask

class Deadly(TrajectoryTask):
    def batch(self, step, indices):
        box = Path(os.environ["VASTRUN_BOX"])
        if os.environ["RANK"] == "1" and step == 9 and (box / "run/stage.json").is_file():
            stage = json.loads((box / "run/stage.json").read_text())
            mark = box / f"killed-{stage['stage']}"
            if not mark.exists():
                saved = {"operator": 8, "refine": 28, "distill": 40}[stage["stage"]]
                eventually((box / f"run/checkpoints/step-{saved:06d}").is_dir)
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().batch(step, indices)

def make(config, folder):
    return Deadly(*advection.load(config, folder))

generate = advection.generate
"""


def weights(box: Box, step: int | None = None) -> list[FileChecksum]:
    """What a checkpoint, the newest one by default, holds of weights and moments."""
    folder = box.path / layout.CHECKPOINTS
    path = newest_first(folder)[0] if step is None else folder / f"step-{step:06d}"
    return [file for file in verify(path).files if file.path.endswith(".distcp")]


def train_to_the_end(box: Box, start_ranks: Start) -> list[str]:
    """Starts the ranks as a supervisor does, until the last stage is over. The stages of the starts."""
    stages = []
    while not stages or len(box.json(layout.STAGES)) < len(STAGES):
        exits = start_ranks(box, 2).wait()
        stages.append(box.json(layout.STAGE)["stage"])
        assert exits in ([0, 0], [1, -signal.SIGKILL]), box.log(0)
        assert len(stages) < 10
    return stages


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, start_ranks: Start) -> Box:
    box = Box(tmp_path_factory.mktemp("undisturbed"), **THREE, keep_checkpoints=50)
    make_data(box)
    assert train_to_the_end(box, start_ranks) == [*STAGES]
    return box


def test_one_runs_stages_equal_three_runs(undisturbed: Box, tmp_path: Path, start_ranks: Start) -> None:
    former = None
    for stage, end in zip(STAGES, ENDS, strict=True):
        own = {"optim": {"lr": 0.001}} if stage == "refine" else {}
        box = Box(tmp_path / stage, **COMMON, **own, stage=stage, steps=STEPS[stage])
        make_data(box)
        if former:
            shutil.copytree(former.path / layout.CHECKPOINTS, box.path / layout.RESUME)
        assert start_ranks(box, 2).wait() == [0, 0], box.log(0)
        assert weights(box) == weights(undisturbed, end)
        first = end - STEPS[stage]
        alone = {step + first: loss for step, loss in box.losses().items()}
        assert alone.items() <= undisturbed.losses().items()
        former = box


def test_what_the_stages_leave_counts_on(undisturbed: Box) -> None:
    lines = undisturbed.losses()
    records = undisturbed.json(layout.STAGES)
    final = undisturbed.json(layout.FINAL)
    beat = read_beat(undisturbed.path / layout.HEARTBEATS / "rank-0")

    assert [*lines] == [*range(1, 45)]
    assert (final["step"], final["steps"], final["stage"]) == (44, 44, "distill")
    assert [record["stage"] for record in records] == [*STAGES]
    assert records[2]["scores"] == final["scores"]
    assert "stage_helps" in records[1]["scores"]
    assert beat is not None
    assert beat.step == 44
    assert undisturbed.json(f"{layout.CHECKPOINTS}/best.json")["step"] > 32
    for folder in ("operator", "refine", "."):
        assert (undisturbed.path / layout.EVALUATION / folder / "report.md").is_file()
    assert "distill  step 44/44  loss" in undisturbed.log(0)


def test_a_kill_in_each_stage_leaves_the_same_bits(box: Box, undisturbed: Box, start_ranks: Start) -> None:
    (box.path / layout.CODE).mkdir(parents=True)
    (box.path / layout.CODE / "deadly.py").write_text(KILLS_IN_EACH_STAGE)
    box.describe(**{**THREE, "data": {**DATA, "task": "deadly:make"}})
    make_data(box)

    stages = train_to_the_end(box, start_ranks)

    assert stages == [stage for stage in STAGES for _ in range(2)]
    assert [weights(box, end) for end in ENDS] == [weights(undisturbed, end) for end in ENDS]
    assert box.losses() == undisturbed.losses()
    kept = {path.name for path in newest_first(box.path / layout.CHECKPOINTS)}
    assert {f"step-{step:06d}" for step in (20, 32, 40, 44)} <= kept
    assert "step-000016" not in kept


@pytest.mark.parametrize("step", [4, 20, 24, 32, 36])
def test_another_machine_continues_in_the_right_stage(
    step: int, box: Box, undisturbed: Box, start_ranks: Start
) -> None:
    box.describe(**THREE)
    make_data(box)
    name = f"step-{step:06d}"
    shutil.copytree(undisturbed.path / layout.CHECKPOINTS / name, box.path / layout.RESUME / name)

    stages = train_to_the_end(box, start_ranks)

    first = next(number for number, end in enumerate(ENDS) if step <= end)
    assert stages == [*STAGES[first:]]
    assert weights(box) == weights(undisturbed)
    known, own = undisturbed.json(layout.STAGES), box.json(layout.STAGES)
    assert [record["scores"]["rollout_nrmse"] for record in own] == [
        record["scores"]["rollout_nrmse"] for record in known
    ]


def test_a_damaged_end_of_a_stage_is_trained_again(box: Box, undisturbed: Box, start_ranks: Start) -> None:
    box.describe(**THREE)
    make_data(box)
    assert start_ranks(box, 2).wait() == [0, 0], box.log(0)
    for file in weights(box, 20):
        (box.path / layout.CHECKPOINTS / "step-000020" / file.path).write_bytes(b"damaged")
    assert train_to_the_end(box, start_ranks) == [*STAGES]
    assert weights(box) == weights(undisturbed)
