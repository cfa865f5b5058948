"""The sets as files: made whole or not at all, by any number of processes, and PDEBench's own read alike."""

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.trainer.data.published import FILES
from vastrun.trainer import data
from vastrun.trainer.data.__main__ import check, main
from vastrun.trainer.errors import DataError
from vastrun.trainer.evaluation.planes import Coordinates
from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.job.config_checks import faults_of
from vastrun.trainer.job.data_config import DataConfig

SMALL = DataConfig(train=17, test=3, points=16, frames=3)
TASKS = sorted(FILES)


FAST = ("compressible_1d", "compressible_2d", "compressible_3d", "incompressible")
"""Their solvers take many steps."""


def config_of(task: str) -> DataConfig:
    return replace(SMALL, task=task, dt=0.01 if task in FAST else SMALL.dt)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all sets."""
    folder = tmp_path_factory.mktemp("data")
    for task in TASKS:
        data.generate(config_of(task), folder)
    return folder


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "data"))


@pytest.mark.parametrize("task", TASKS)
def test_what_is_tested_on_was_not_trained_on_at_any_parameter(task: str, made: Path) -> None:
    splits = data.splits(config_of(task), made)
    files = len(config_of(task).parameters_of(task))
    assert (len(splits.train), len(splits.test)) == (17 * files, 3 * files)
    begin = [
        split.read(range(len(split)))[:, 0].reshape(len(split), -1) for split in (splits.train, splits.test)
    ]
    seen = {row.tobytes() for row in begin[0]}
    assert seen.isdisjoint(row.tobytes() for row in begin[1])
    assert len(seen) == 17
    np.testing.assert_allclose(begin[0][:17], begin[0][-17:], atol=1e-6)


@pytest.mark.parametrize("task", [task for task in TASKS if task != "incompressible"])
def test_axes_of_pictures_have_the_values_of_the_file(task: str, made: Path) -> None:
    axes = Coordinates.of(config_of(task), (16,) * config_of(task).axes).axes
    with h5py.File(made / FILES[task]) as file:
        names = [f"{axis.name}-coordinate" for axis in axes]
        found = [file[name if name in file else f"0000/grid/{name[0]}"][:] for name in names]
    for axis, values in zip(axes, found, strict=True):
        np.testing.assert_allclose(axis.centres, values, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("task", TASKS)
def test_the_launcher_knows_how_large_the_files_are(task: str, made: Path) -> None:
    config = config_of(task)
    arrays: dict[str, int] = {}
    with h5py.File(made / FILES[task]) as file:
        file.visititems(lambda name, item: arrays.update({name: getattr(item, "nbytes", 0)}))
    sizes = [size for name, size in arrays.items() if not re.search("grid/|coordinate|^t$", name)]
    if task == "incompressible":  # the force is stored once, and counts in each frame
        assert sum(sizes) < config.file_gb * 1e9 < 5 / 3 * sum(sizes)
    else:
        assert config.file_gb * 1e9 == pytest.approx(sum(sizes))


def test_a_steady_set_says_so_and_has_no_time(made: Path) -> None:
    splits = data.splits(config_of("darcy"), made)
    assert splits.train.steady and splits.train.shape == (2, 16, 16)
    assert splits.train.channels == ("coefficient", "solution")
    assert splits.train.parameters.shape == (17, 1)
    moving = data.splits(config_of("diffusion_reaction"), made).train
    assert (moving.steady, moving.shape, moving.channels) == (False, (3, 2, 16, 16), ("u", "v"))
    np.testing.assert_allclose(moving.parameters, -1.0)


def test_frames_are_read_alone_and_a_reader_goes_to_another_process_closed(made: Path) -> None:
    train = data.splits(config_of("shallow_water"), made).train
    whole = train.read([4])
    again = pickle.loads(pickle.dumps(train))
    np.testing.assert_array_equal(again.read([4], slice(1, 3)), whole[:, 1:3])


@pytest.mark.parametrize("task", ["burgers", "darcy"])
def test_two_processes_make_the_same_file_as_one(task: str, made: Path, tmp_path: Path) -> None:
    data.generate(config_of(task), tmp_path, jobs=2)
    name = FILES[task]
    assert (tmp_path / name).read_bytes() == (made / name).read_bytes()


def test_making_goes_on_where_it_was_interrupted(made: Path, tmp_path: Path) -> None:
    told: list[int] = []

    class Interrupted(Exception):
        pass

    def interrupt(name: str, done: int, of: int) -> None:
        told.append(done)
        if len(told) == 2:
            raise Interrupted

    with pytest.raises(Interrupted):
        data.generate(config_of("shallow_water"), tmp_path, on_progress=interrupt)
    (pieces,) = (path for path in tmp_path.iterdir() if path.name.endswith(".pieces"))
    assert not (tmp_path / FILES["shallow_water"]).exists()
    kept = {place.name: place.stat().st_mtime_ns for place in pieces.iterdir()}
    assert len(kept) == 2
    seen: dict[str, int] = {}

    def look(name: str, done: int, of: int) -> None:
        seen.update((place.name, place.stat().st_mtime_ns) for place in pieces.iterdir())

    data.generate(config_of("shallow_water"), tmp_path, on_progress=look)
    assert kept.items() <= seen.items()
    name = FILES["shallow_water"]
    assert (tmp_path / name).read_bytes() == (made / name).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]


@pytest.mark.parametrize("task", ["darcy", "shallow_water"])
def test_a_check_finds_what_is_not_finite(task: str, copied: Path) -> None:
    config = config_of(task)
    assert check(config, copied)[0].startswith(f"{task}: 17 ")
    name = "tensor" if task == "darcy" else "0018/data"
    with h5py.File(copied / FILES[task], "a") as file:
        file[name][-1] = np.nan
    with pytest.raises(DataError, match=r"NaN or infinity, the first is number 1[89]"):
        check(config, copied)


def test_a_truncated_file_is_named(copied: Path) -> None:
    path = copied / FILES["darcy"]
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(DataError, match=r"DarcyFlow.*expected an HDF5 file: .*truncated"):
        data.splits(config_of("darcy"), copied)


def test_command_makes_and_checks_sets_anywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    anywhere = ["--folder", str(tmp_path)]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        """As the command does, without the start of another Python."""
        try:
            code = main([*arguments, *anywhere])
        except SystemExit as end:
            code = int(end.code or 0)
        return subprocess.CompletedProcess(arguments, code, *capsys.readouterr())

    wanted = {"task": "burgers", "nus": [0.1, 0.2], "train": 2, "test": 1, "points": 16, "frames": 2}
    command = [sys.executable, "-m", "vastrun.trainer.data", "generate", "--data", json.dumps(wanted)]
    made = subprocess.run([*command, "--jobs", "auto", *anywhere], capture_output=True, text=True)
    assert (made.returncode, made.stderr) == (0, "")
    assert "1D_Burgers_Sols_Nu0.2.hdf5: 3 trajectories of 2 frames and 16 points made" in made.stdout
    checked = run("check", "--data", json.dumps(wanted)).stdout
    assert checked == "burgers: 4 trajectories to train on, 2 to test on\n"
    assert run("check", "--data", json.dumps({**wanted, "frames": 3})).returncode == 1
    unseen = json.dumps({**wanted, "unseen": {"nus": [0.15]}})
    assert "Nu0.15.hdf5: 1 trajectories" in run("generate", "--data", unseen).stdout
    assert "  1 to test on at parameters that are not trained" in run("check", "--data", unseen).stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--data", '{"points": 3}'], "points: expected at least 16, not 3"),
        (["--data", '{"pionts": 64}'], "unknown key pionts"),
        (["--data", "[]"], "expected an object"),
        (["--data", "{"], "--data: "),
        (["--jobs", "0"], "expected auto or a whole number of at least 1, got 0"),
        (["--jobs", "some"], "expected auto or a whole number of at least 1, got some"),
    ],
)
def test_data_that_make_no_sense_are_refused_with_the_reason(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["generate", "--folder", str(tmp_path), *arguments])
    assert said in capsys.readouterr().err


def test_a_job_that_names_what_its_task_does_not_read_is_refused() -> None:
    def keys(**settings: object) -> list[str]:
        return [key for key, _ in faults_of(TrainConfig(data=(DataConfig(**settings),)), 1)]

    assert keys(task="burgers", nus=(0.5,)) == []
    assert keys(task="burgers", betas=(0.5,)) == ["data.betas"]
    assert keys(task="my.own:make", betas=(0.5,), nus=(1.0,)) == []
    assert keys(task="burgers", nus=(0.5,), train=10, frames=5, test=1) == ["batch"]
    assert keys(task="darcy", sources=(2.0,)) == []
    assert keys(task="compressible_2d", machs=(0.3, 1.0), etas=(0.1,)) == []
    assert keys(task="compressible_1d", machs=(0.3,), nus=(1.0,)) == ["data.nus", "data.machs"]
    assert keys(task="reaction_diffusion", nus=(1.0,), rhos=(2.0,)) == []
