"""The advection data: exact, in PDEBench's layout, one split for all speeds, nothing written twice."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.trainer.conftest import Box
from vastrun.contract import layout
from vastrun.trainer import data
from vastrun.trainer.data import advection
from vastrun.trainer.data.__main__ import main
from vastrun.trainer.data.initial_conditions import draw
from vastrun.trainer.data.pdebench import Grid
from vastrun.trainer.errors import DataError
from vastrun.trainer.job.data_config import DataConfig

SMALL = DataConfig(betas=(0.5, 1.0), train=12, test=4, points=32, frames=5)
GRID = Grid(points=64, frames=9, dt=0.25)


def fields_of(path: Path) -> np.ndarray:
    with h5py.File(path) as file:
        return file["tensor"][:]


def test_a_field_is_the_first_one_turned_by_beta_t() -> None:
    u = advection.solve(draw(32, np.random.default_rng(1)), 0.5, GRID)
    for frame, t in enumerate(GRID.t):
        np.testing.assert_allclose(u[:, frame], np.roll(u[:, 0], round(0.5 * t * 64), axis=1), atol=1e-9)


def test_initial_conditions_have_the_statistics_of_pdebench() -> None:
    u0 = draw(4000, np.random.default_rng(3))
    assert u0.folded.mean() == pytest.approx(0.1, abs=0.02)
    assert (u0.sign < 0).mean() == pytest.approx(0.5, abs=0.03)
    assert u0.windowed.mean() == pytest.approx(0.1, abs=0.02)
    assert set(np.unique(u0.wavenumber)) == {0, 1, 2, 3, 4, 6, 8}
    offset = np.abs(u0(Grid(points=64, frames=1, dt=1).x).mean(axis=1))
    assert (offset > 0.1).mean() == pytest.approx(0.85, abs=0.05)


def test_files_have_the_layout_of_pdebench(tmp_path: Path) -> None:
    advection.generate(SMALL, tmp_path)
    with h5py.File(tmp_path / "1D_Advection_Sols_beta0.5.hdf5") as file:
        assert file["tensor"].shape == (16, 5, 32)
        assert file["tensor"].dtype == file["x-coordinate"].dtype == file["t-coordinate"].dtype == np.float32
        np.testing.assert_allclose(file["x-coordinate"], (np.arange(32) + 0.5) / 32, rtol=1e-6)
        np.testing.assert_allclose(file["t-coordinate"], np.arange(6) * 0.1, rtol=1e-6)
        assert (file.attrs["beta"], file.attrs["seed"]) == (0.5, 2022)
        assert file.attrs["generator"] == advection.GENERATOR


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(tmp_path: Path) -> None:
    sums = []
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        advection.generate(replace(SMALL, seed=seed), tmp_path / folder)
        path = advection.path_of(tmp_path / folder, 0.5)
        sums.append(hashlib.sha256(path.read_bytes()).hexdigest())
    assert sums[0] == sums[1] != sums[2]


def test_a_second_generate_writes_nothing_and_a_changed_config_writes_anew(tmp_path: Path) -> None:
    advection.generate(SMALL, tmp_path)
    path = advection.path_of(tmp_path, 0.5)
    written = path.stat().st_mtime_ns
    advection.generate(SMALL, tmp_path)
    assert path.stat().st_mtime_ns == written
    advection.generate(replace(SMALL, frames=6), tmp_path)
    assert fields_of(path).shape == (16, 6, 32)
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


def test_a_file_that_is_not_ours_is_read_and_never_replaced(tmp_path: Path) -> None:
    advection.generate(SMALL, tmp_path)
    path = advection.path_of(tmp_path, 0.5)
    with h5py.File(path, "a") as file:
        del file.attrs["generator"]
        file["tensor"][0] = 7.0
    advection.generate(replace(SMALL, seed=5), tmp_path)
    train, _ = advection.load(SMALL, tmp_path)
    assert (train.fields[0] == 7.0).all()


def test_all_speeds_begin_from_the_same_initial_conditions_in_the_same_split(tmp_path: Path) -> None:
    advection.generate(SMALL, tmp_path)
    train, test = advection.load(SMALL, tmp_path)
    assert (len(train), len(test)) == (24, 8)
    first_frames = train.fields[:, 0]
    assert (first_frames[:12] == first_frames[12:]).all()
    seen = {row.numpy().tobytes() for row in first_frames}
    assert seen.isdisjoint(row.numpy().tobytes() for row in test.fields[:, 0])
    assert train.conditions[:, 0].tolist() == pytest.approx([np.log10(0.5)] * 12 + [0.0] * 12)


def test_a_test_set_does_not_depend_on_how_much_there_is_to_train_on(tmp_path: Path) -> None:
    for folder, n in (("a", 12), ("b", 300)):
        advection.generate(replace(SMALL, train=n), tmp_path / folder)
    small, large = (fields_of(advection.path_of(tmp_path / folder, 1.0))[-4:] for folder in "ab")
    np.testing.assert_array_equal(small, large)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("advektion", "expected one of advection, burgers, .*, or module:function, got 'advektion'"),
        ("no_such_module:make", "No module named 'no_such_module'"),
        ("vastrun.trainer.data.advection:mak", "has no attribute 'mak'"),
    ],
)
def test_a_task_that_cannot_be_found_is_named(tmp_path: Path, task: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        data.make_task(replace(SMALL, task=task), tmp_path)


def test_the_command_makes_the_data_of_a_box_and_says_so(
    box: Box, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VASTRUN_BOX", str(box.path))
    with pytest.raises(SystemExit, match="2"):
        main(["make"])
    assert main(["check"]) == 1
    assert "no such file" in capsys.readouterr().err
    made = subprocess.run(
        [sys.executable, "-m", "vastrun.trainer.data", "generate"], capture_output=True, text=True
    )
    assert "40 trajectories of 9 frames and 32 points made" in made.stdout
    assert (box.path / layout.DATA / "1D_Advection_Sols_beta1.0.hdf5").is_file()
    assert main(["check"]) == 0
    assert capsys.readouterr().out == "advection: 32 trajectories to train on, 8 to test on\n"


def test_no_verb_of_the_command_waits_for_torch(tmp_path: Path) -> None:
    """A rented machine makes and checks its data while the launch agent imports torch."""
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "torch.py").write_text("raise ImportError('torch was imported')")
    options = ["--data", '{"betas": [1.0], "train": 2, "test": 1, "points": 16, "frames": 2}']
    for verb in ("generate", "check"):
        done = subprocess.run(
            [sys.executable, "-m", "vastrun.trainer.data", verb, *options, "--folder", str(tmp_path)],
            env={**os.environ, "PYTHONPATH": str(blocked)},
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stderr) == (0, ""), verb
