"""Three axes: a small file in the published layout is read, trained on, scored, drawn and resumed."""

import math
import signal
from typing import Any

import h5py
import numpy as np
import pytest

from tests.trainer.conftest import Box
from tests.trainer.test_training import Start, tensor_files
from vastrun.contract import layout
from vastrun.trainer.data.compressible import CUBE
from vastrun.trainer.data.pdebench import Grid
from vastrun.trainer.job.data_config import DataConfig

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(900)]

GRID = Grid(points=16, frames=5, dt=0.05)
MACH, ETA = 1.0, 1e-08
TRAIN, TEST = 8, 3
DATA: dict[str, Any] = {"machs": [MACH], "etas": [ETA], "train": TRAIN, "test": TEST}
DATA |= {"points": GRID.points, "frames": GRID.frames, "dt": GRID.dt}
FILE = "3D_CFD_Rand_M1.0_Eta1e-08_Zeta1e-08_periodic_Train.hdf5"
CHANNELS = ("density", "pressure", "Vx", "Vy", "Vz")


TASK_THAT_KILLS_RANK_1 = """
import os, signal
from pathlib import Path
from tests.waiting import eventually
from vastrun.trainer.data.compressible import CUBE
from vastrun.trainer.data.trajectories import TrajectoryTask

class Deadly(TrajectoryTask):
    def batch(self, step, indices):
        if os.environ["RANK"] == "1" and step == 13:
            eventually(Path(os.environ["VASTRUN_BOX"], "run/checkpoints/step-000010").is_dir)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().batch(step, indices)

def make(config, folder):
    return Deadly(*CUBE.load(config, folder))
"""


def describe(box: Box, strategy: str, *, task: str = "compressible_3d", **settings: Any) -> None:
    box.describe(data={**DATA, "task": task}, batch=4, strategy=strategy, **settings)


@pytest.fixture(scope="module")
def flows() -> np.ndarray:
    """(n, T, K, X, Y, Z)"""
    problem, rng = CUBE, np.random.default_rng(3)
    return problem.solve(problem.draw(TRAIN + TEST, GRID, rng), MACH, ETA, GRID)


def publish(flows: np.ndarray, box: Box) -> None:
    """Writes the flows as PDEBench publishes them: an array for each field, no word on how they were made."""
    folder = box.path / layout.DATA
    folder.mkdir(parents=True)
    with h5py.File(folder / FILE, "w") as file:
        for number, name in enumerate(CHANNELS):
            file[name] = flows[:, :, number].astype("f4")
        for name in "xyz":
            file[f"{name}-coordinate"] = GRID.x.astype("f4")
        file["t-coordinate"] = (np.arange(GRID.frames + 1) * GRID.dt).astype("f4")
        file.attrs.update({"M": MACH, "eta": ETA, "zeta": ETA})


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory, start_ranks: Start, flows: np.ndarray
) -> dict[str, Box]:
    """Boxes in which two ranks trained to the end, by strategy."""
    boxes = {}
    for strategy in ("ddp", "fsdp2"):
        boxes[strategy] = box = Box(tmp_path_factory.mktemp(strategy) / "box")
        publish(flows, box)
        describe(box, strategy, plots=strategy == "ddp")
        assert start_ranks(box, 2).wait() == [0, 0], box.log(0)
    return boxes


def test_shards_learn_what_copies_learn_to_the_last_digit(finished: dict[str, Box]) -> None:
    losses = finished["ddp"].losses()
    assert losses == finished["fsdp2"].losses()
    assert losses[20] < 0.98 * losses[1]


def test_flows_are_scored_in_space_by_wavenumber_edges_and_conservation(finished: dict[str, Box]) -> None:
    scores, sharded = (finished[name].json(layout.FINAL)["scores"] for name in ("ddp", "fsdp2"))
    assert scores == pytest.approx(sharded, rel=1e-4)
    assert scores["rollout_diverged"] == 0
    spatial = (
        "boundary_rmse",
        "conservation_rmse",
        "max_error",
        "spectrum_low",
        "spectrum_mid",
        "spectrum_high",
    )
    assert all(0 < scores[f"rollout_{name}"] < math.inf for name in spatial)
    assert 0 < scores["rollout_nrmse"] < scores["nearest_nrmse"]
    # The flow itself conserves its mass, so that the error of the mean density is the model's alone.
    assert scores["rollout_conservation_rmse"] < scores["rollout_rmse"]


def test_flows_are_drawn_in_planes_through_their_middle(finished: dict[str, Box]) -> None:
    report = finished["ddp"].path / layout.EVALUATION
    kinds = ("fields", "rollouts", "error", "spectra")
    pictures = [report / f"compressible_3d-{kind}.png" for kind in kinds]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)
    # The launcher takes no larger ones.
    assert all(path.stat().st_size < 1 << 20 for path in pictures)
    text = (report / "report.md").read_text()
    assert all(f"]({path.name})" in text for path in pictures)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
@pytest.mark.parametrize("ranks", [2, 1])
def test_a_killed_training_goes_on_to_the_last_bit_and_on_another_number_of_ranks_along_the_same_curve(
    box: Box, finished: dict[str, Box], start_ranks: Start, flows: np.ndarray, ranks: int, strategy: str
) -> None:
    publish(flows, box)
    (box.path / layout.CODE).mkdir()
    (box.path / layout.CODE / "deadly.py").write_text(TASK_THAT_KILLS_RANK_1)
    describe(box, strategy, task="deadly:make")
    assert start_ranks(box, 2).wait() == [1, -signal.SIGKILL]

    describe(box, strategy if ranks > 1 else "single")
    assert start_ranks(box, ranks).wait() == [0] * ranks, box.log(0)
    assert "resumes after step 10" in box.log(0)
    if ranks == 2:
        assert box.losses() == finished[strategy].losses()
        assert tensor_files(box) == tensor_files(finished[strategy])
    else:
        assert box.losses() == pytest.approx(finished[strategy].losses(), abs=1e-5)


def test_the_data_of_a_job_are_in_the_units_of_the_file(finished: dict[str, Box], flows: np.ndarray) -> None:
    splits = CUBE.splits(
        DataConfig(
            task="compressible_3d",
            machs=(MACH,),
            etas=(ETA,),
            train=TRAIN,
            test=TEST,
            points=GRID.points,
            frames=GRID.frames,
            dt=GRID.dt,
        ),
        finished["ddp"].path / layout.DATA,
    )
    np.testing.assert_array_equal(splits.test.read([0]), flows[[TRAIN]].astype("f4"))
    assert splits.train.parameters[0].tolist() == pytest.approx(
        [math.log10(MACH), math.log10(ETA), math.log10(0.05)]
    )
