"""Conditions: generated data hold none twice and no uniform one; test conditions in training are reported."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from vastrun.trainer import data
from vastrun.trainer.data import problem
from vastrun.trainer.data.darcy import PROBLEM as DARCY
from vastrun.trainer.data.draws import DistinctConditions
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.errors import DataError
from vastrun.trainer.job.data_config import DataConfig
from vastrun.trainer.loading.training_set import SeenConditions, count_seen_conditions, rows_to_compare

NO_BUMPS = DataConfig(task="darcy", train=256, test=64, points=16)
"""320 coefficients, of which five of those drawn first are uniform: four to train on, one to test on."""


@pytest.fixture(scope="module")
def darcy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("darcy")
    data.generate(NO_BUMPS, folder)
    return folder


def test_no_coefficient_is_uniform_or_drawn_twice(darcy: Path) -> None:
    splits = data.splits(NO_BUMPS, darcy)
    fields = [split.read(range(len(split)))[:, 0] for split in (splits.train, splits.test)]
    coefficients = np.concatenate(fields).reshape(320, -1)
    assert (coefficients.min(1) < coefficients.max(1)).all()
    assert len(np.unique(coefficients, axis=0)) == 320


def test_only_rejected_coefficients_are_drawn_anew(darcy: Path) -> None:
    drawn = np.concatenate(
        [
            DARCY.draw(DARCY.chunk, problem._grid(NO_BUMPS), rng)
            for stream, n in ((0, 256), (1, 64))
            for rng in [np.random.default_rng([NO_BUMPS.seed, stream])]
            for _ in range(n // DARCY.chunk)
        ]
    )
    splits = data.splits(NO_BUMPS, darcy)
    kept = np.concatenate([split.read(range(len(split)))[:, 0] for split in (splits.train, splits.test)])
    changed = (drawn.astype(np.float32) != kept).any(axis=(1, 2))
    uniform = np.ptp(drawn.reshape(320, -1), axis=1) == 0
    assert uniform.sum() >= 5
    assert (changed == uniform).all()


def test_a_generator_without_further_conditions_says_so() -> None:
    distinct = DistinctConditions(np.ones((1, 4)), axes=1)
    same = np.arange(4.0)[None].repeat(2, axis=0)
    with pytest.raises(DataError, match="1000 conditions in a row were uniform or drawn before"):
        distinct.replace_rejected(same, lambda: np.arange(4.0)[None])
    with pytest.raises(DataError, match="ask for fewer samples, or for more points"):
        distinct.replace_rejected(np.ones((1, 4)), lambda: np.ones((1, 4)))


@dataclass(frozen=True, kw_only=True)
class Waves:
    """A draw with an array that all samples share, and which has as many rows as there are samples."""

    wavenumbers: np.ndarray
    height: np.ndarray

    def __len__(self) -> int:
        return len(self.height)


def test_what_samples_share_is_not_drawn_anew() -> None:
    def draw(*heights: float) -> Waves:
        return Waves(wavenumbers=np.arange(3), height=np.array(heights))

    found = DistinctConditions(draw(0.0), axes=1).replace_rejected(draw(1.0, 2.0, 1.0), lambda: draw(4.0))
    assert found.height.tolist() == [1.0, 2.0, 4.0]
    assert found.wavenumbers.tolist() == [0, 1, 2]


def test_test_conditions_that_were_trained_on_are_reported(darcy: Path, alone: Ranks, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(darcy, tmp_path / "data"))
    with h5py.File(folder / "2D_DarcyFlow_beta1.0_Train.hdf5", "a") as file:
        del file.attrs["generator"]  # data of the user's own
        file["nu"][-2:] = file["nu"][:2]
    line = (
        "2 of 64 test samples have an initial condition or coefficient of the training set: "
        "their scores are those of known samples"
    )
    for keep in ("device", "disk"):
        task = data.make_task(replace(NO_BUMPS, keep=keep), folder)
        task.place(torch.device("cpu"))
        assert count_seen_conditions(task, alone, lambda: None).lines == [line]


def test_large_sets_are_compared_in_part_and_the_report_says_so() -> None:
    rows = rows_to_compare(256, 16 * 16, max_bytes=2 * 16 * 16 * 4)
    assert rows == [0, 255]
    [line] = SeenConditions(test=64, seen=1, compared=len(rows), train=256).lines
    assert "(of which 2 of 256 were read)" in line
