"""PDEBench's own files: read like ours, thinned to the points and frames that a job asks for."""

import tracemalloc
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from tests.trainer.data.published import FILES
from vastrun.trainer import data
from vastrun.trainer.data.__main__ import check
from vastrun.trainer.engine.session_builder import space_of
from vastrun.trainer.errors import DataError
from vastrun.trainer.job.data_config import PARAMETERS, DataConfig, Keep
from vastrun.trainer.sampling.windows import draw_indices

PUBLISHED = {
    "advection": DataConfig(task="advection", betas=(1.0,), points=1024, frames=201, dt=0.01),
    "burgers": DataConfig(task="burgers", nus=(0.1,), points=1024, frames=201, dt=0.01),
    "compressible_1d": DataConfig(task="compressible_1d", points=1024, frames=101, dt=0.01),
    "compressible_2d": DataConfig(task="compressible_2d", points=128, frames=21, dt=0.05),
    # Theirs have 128 points along an axis.
    "compressible_3d": DataConfig(task="compressible_3d", points=16, frames=21, dt=0.05),
    "darcy": DataConfig(task="darcy", points=128),
    "diffusion_reaction": DataConfig(task="diffusion_reaction", points=128, frames=101, dt=0.05),
    "diffusion_sorption": DataConfig(task="diffusion_sorption", points=1024, frames=101, dt=5.0),
    # Theirs have 512 points along an axis and 1,000 frames.
    "incompressible": DataConfig(task="incompressible", points=64, frames=41, dt=0.005),
    "reaction_diffusion": DataConfig(task="reaction_diffusion", nus=(0.1,), points=1024, frames=101, dt=0.01),
    "shallow_water": DataConfig(task="shallow_water", points=128, frames=101, dt=0.01),
}
"""What is in the files: the shapes that were published, but few samples."""
SAMPLES = {"train": 2, "test": 1}
TASKS = sorted(FILES)
THINNED = {
    task: replace(
        config,
        **SAMPLES,
        points=config.points // 4,
        frames=min(21, 1 + (config.frames - 1) // 5),
        dt=config.dt * 5,
    )
    for task, config in PUBLISHED.items()
}


def published(task: str, folder: Path) -> np.ndarray:
    """Writes a file of PDEBench's; what is in it, as it is to be read."""
    config = PUBLISHED[task]
    with h5py.File(folder / FILES[task], "w") as file:
        return WRITERS[task](file, config, sum(SAMPLES.values()))


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape, dtype=np.float32)


def write_coordinates(file: h5py.File, config: DataConfig, begin: float, end: float, axes: str = "x") -> None:
    step = (end - begin) / config.points
    for axis in axes:
        file[f"{axis}-coordinate"] = (begin + step * (np.arange(config.points) + 0.5)).astype("f4")


def write_line(file: h5py.File, config: DataConfig, n: int) -> np.ndarray:
    values = random(n, config.frames, 1, config.points)
    file["tensor"] = values[:, :, 0]
    write_coordinates(file, config, 0, 1)
    file["t-coordinate"] = (np.arange(config.frames + 1) * config.dt).astype("f4")
    if config.task == "reaction_diffusion":
        file.attrs.update(Nu=0.1, rho=1.0)
    return values


def write_darcy(file: h5py.File, config: DataConfig, n: int) -> np.ndarray:
    values = random(n, 2, config.points, config.points)
    file["nu"], file["tensor"] = values[:, 0], values[:, 1:]
    write_coordinates(file, config, 0, 1, "xy")
    file.attrs["beta"] = 1.0
    return values


def write_gas(file: h5py.File, config: DataConfig, n: int) -> np.ndarray:
    names = ("density", "pressure", "Vx", "Vy", "Vz")[: 2 + config.axes]
    values = random(n, config.frames, len(names), *[config.points] * config.axes)
    for channel, name in enumerate(names):
        file[name] = values[:, :, channel]
    write_coordinates(file, config, *((-1, 1, "x") if config.axes == 1 else (0, 1, "xyz"[: config.axes])))
    file["t-coordinate"] = (np.arange(config.frames + 1) * config.dt).astype("f4")
    file.attrs.update(eta=0.01, zeta=0.01, **({} if config.axes == 1 else {"M": 0.1}))
    return values


def write_flow(file: h5py.File, config: DataConfig, n: int) -> np.ndarray:
    values = random(n, config.frames, 5, config.points, config.points)
    values[:, :, 3:] = values[:, :1, 3:]
    last = np.moveaxis(values, 2, -1)
    packed = {"chunks": (1, 1, config.points, config.points, 1), "compression": "lzf", "shuffle": True}
    file.create_dataset("velocity", data=last[..., :2], **packed)
    file.create_dataset("particles", data=last[..., 2:3], **packed)
    file["force"] = last[:, 0, ..., 3:]
    file["t"] = np.tile((np.arange(config.frames) * config.dt).astype("f4"), (n, 1))
    file.attrs.update(config="NU: 0.01\n" * 100, latestIndex=config.frames - 1)
    return values


def write_groups(file: h5py.File, config: DataConfig, n: int) -> np.ndarray:
    channels = {"diffusion_reaction": 2}.get(config.task, 1)
    begin, end = {"diffusion_sorption": (0, 1), "shallow_water": (-2.5, 2.5)}.get(config.task, (-1, 1))
    values = random(n, config.frames, channels, *[config.points] * config.axes)
    step = (end - begin) / config.points
    for row in range(n):
        group = file.create_group(f"{row:04d}")
        group["data"] = np.moveaxis(values[row], 1, -1)
        for axis in "xy"[: config.axes]:
            group[f"grid/{axis}"] = (begin + step * (np.arange(config.points) + 0.5)).astype("f4")
        group["grid/t"] = (np.arange(config.frames) * config.dt).astype("f4")
    return values


WRITERS = {
    "advection": write_line,
    "burgers": write_line,
    "compressible_1d": write_gas,
    "compressible_2d": write_gas,
    "compressible_3d": write_gas,
    "darcy": write_darcy,
    "diffusion_reaction": write_groups,
    "diffusion_sorption": write_groups,
    "incompressible": write_flow,
    "reaction_diffusion": write_line,
    "shallow_water": write_groups,
}


def coarsened(task: str, values: np.ndarray) -> np.ndarray:
    if task == "darcy":
        return values[..., ::4, ::4]
    if task == "diffusion_reaction":
        rows = values[:, :101:5].reshape(*values[:, :101:5].shape[:-1], 32, 4).mean(-1, dtype=np.float64)
        return rows.reshape(*rows.shape[:-2], 32, 4, 32).mean(-2, dtype=np.float64)
    return values[(slice(None), slice(None, 101, 5), ..., *[slice(None, None, 4)] * (values.ndim - 3))]


def test_every_task_has_its_file() -> None:
    assert set(FILES) == set(PUBLISHED) == set(WRITERS) == set(PARAMETERS)


@pytest.mark.parametrize("task", TASKS)
def test_a_published_file_is_left_alone_and_read_as_it_is_or_thinned(task: str, tmp_path: Path) -> None:
    whole = published(task, tmp_path)
    for config, values in (
        (replace(PUBLISHED[task], **SAMPLES), whole),
        (THINNED[task], coarsened(task, whole)),
    ):
        assert data.generate(config, tmp_path) == [f"{FILES[task]}: present"]
        splits = data.splits(config, tmp_path)
        rounding = 1e-6 if values.dtype == np.float64 else 0  # of means in float32
        np.testing.assert_allclose(splits.train.read([1, 0]), values[[1, 0]], rtol=0, atol=rounding)
        np.testing.assert_allclose(splits.test.read([0]), values[2:], rtol=0, atol=rounding)
    steady = splits.train.steady
    moments = data.make_task(config, tmp_path).train.moments()
    axes = tuple(axis for axis in range(values.ndim) if axis != (1 if steady else 2))
    for found, of in zip(moments, (np.mean, np.std), strict=True):
        expected = of(values[:2], axis=axes, dtype=np.float64)
        rows = expected[:, None] if steady else np.stack([expected, expected])
        np.testing.assert_allclose(found, rows, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("task", TASKS)
def test_thinned_windows_are_the_same_wherever_the_file_is_read_from(task: str, tmp_path: Path) -> None:
    published(task, tmp_path)
    keeps: tuple[Keep, ...] = ("device", "host", "disk")
    tasks = [data.make_task(replace(THINNED[task], keep=keep), tmp_path) for keep in keeps]
    chosen = draw_indices(0, 0, batch=2, noise=0.0, space=space_of(tasks[0].train, 3))
    expected, *others = (task.batch(0, chosen).fields for task in tasks)
    for found in others:
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("task", ["burgers", "diffusion_reaction", "darcy"])
def test_a_check_tells_how_much_of_a_file_is_read(task: str, tmp_path: Path) -> None:
    published(task, tmp_path)
    times = "" if task == "darcy" else " and 1 of 5 frames"
    points = f"{'means of' if task == 'diffusion_reaction' else '1 of'} 4 points along an axis"
    told = f"  {FILES[task]}: {points}{times} are read"
    assert check(THINNED[task], tmp_path)[1:] == check(THINNED[task], tmp_path, quick=True)[1:] == [told]
    as_it_is = replace(PUBLISHED[task], **SAMPLES)
    assert len(check(as_it_is, tmp_path)) == 1


@pytest.mark.parametrize(
    ("task", "asked", "message"),
    [
        ("burgers", {"points": 96}, "expected 96 points along each axis or a multiple .*`tensor` has 1024"),
        ("burgers", {"points": 2048}, "expected 2048 points .*`tensor` has 1024"),
        ("burgers", {"dt": 0.015}, "expected frames 0.015 apart or .*`t-coordinate` starts with 0, 0.01"),
        ("burgers", {"dt": 0.005}, "expected frames 0.005 apart"),
        ("burgers", {"frames": 42}, "expected 206 frames for 42 of 1 in 5, got 201"),
        ("burgers", {"train": 3}, "expected at least 4 samples, got 3"),
        ("shallow_water", {"points": 100}, "expected 100 points .*`0000/data` has 128 x 128"),
        ("shallow_water", {"frames": 22}, "expected 106 frames for 22 of 1 in 5, got 101"),
        ("darcy", {"points": 48}, "expected 48 points .*`nu` has 128 x 128"),
    ],
)
def test_what_cannot_be_had_of_a_published_file_is_named(
    tmp_path: Path, task: str, asked: dict[str, float], message: str
) -> None:
    published(task, tmp_path)
    with pytest.raises(DataError, match=message):
        data.splits(replace(THINNED[task], **asked), tmp_path)


@pytest.mark.parametrize(
    ("keep", "chunks"), [("device", None), ("host", None), ("host", (1, 201, 1024)), ("disk", None)]
)
def test_of_a_file_of_eight_gigabytes_no_more_is_read_than_is_asked_for(
    tmp_path: Path, keep: Keep, chunks: tuple[int, ...] | None
) -> None:
    with h5py.File(tmp_path / FILES["burgers"], "w") as file:
        # Nothing is written, so that the disk gives no room for it.
        file.create_dataset("tensor", (10_000, 201, 1024), "f4", chunks=chunks)
        file["x-coordinate"] = np.linspace(0, 1, 1024, dtype="f4")
        file["t-coordinate"] = (np.arange(202) * 0.01).astype("f4")
        file["tensor"][0], file["tensor"][-1] = 1.0, 3.0
    tracemalloc.start()
    task = data.make_task(replace(THINNED["burgers"], keep=keep), tmp_path)
    mean, _ = task.train.moments()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (mean[0].item(), task.test.fields.mean().item()) == (0.5, 3.0)
    assert peak < 50e6


def test_files_that_continue_each_other_are_read_as_one(tmp_path: Path) -> None:
    config = replace(PUBLISHED["incompressible"], frames=3, points=16, train=4, validation=1, test=1)
    wholes = []
    for number, name in enumerate(("ns_incom_inhom_2d_512-0.h5", "ns_incom_inhom_2d_512-1.h5")):
        with h5py.File(tmp_path / name, "w") as file:
            wholes.append(write_flow(file, config, 3) + number)
        with h5py.File(tmp_path / name, "a") as file:
            for key in ("velocity", "particles", "force"):
                file[key][...] += number
    whole = np.concatenate(wholes)
    splits = data.splits(config, tmp_path)
    np.testing.assert_allclose(splits.train.read(range(3)), whole[:3], rtol=1e-6)
    assert splits.validation is not None
    np.testing.assert_allclose(splits.validation.read([0]), whole[3:4], rtol=1e-6)
    np.testing.assert_allclose(splits.test.read([0]), whole[-1:], rtol=1e-6)
    with pytest.raises(
        DataError, match=r"2d_512-0.h5 and 1 further files: expected at least 9 samples in all, got 6"
    ):
        data.splits(replace(config, train=8), tmp_path)


@pytest.mark.parametrize(
    ("config", "names"),
    [
        (
            DataConfig(task="compressible_1d", etas=(1e-8, 0.1)),
            (
                "1D_CFD_Rand_Eta1.e-8_Zeta1.e-8_periodic_Train.hdf5",
                "1D_CFD_Rand_Eta0.1_Zeta0.1_periodic_Train.hdf5",
            ),
        ),
        (
            DataConfig(task="compressible_2d", machs=(1.0,), etas=(1e-8, 0.1)),
            (
                "2D_CFD_Rand_M1.0_Eta1e-08_Zeta1e-08_periodic_512_Train.hdf5",
                "2D_CFD_Rand_M1.0_Eta0.1_Zeta0.1_periodic_128_Train.hdf5",
            ),
        ),
        (
            DataConfig(task="compressible_3d", machs=(1.0,), etas=(1e-8,)),
            ("3D_CFD_Rand_M1.0_Eta1e-08_Zeta1e-08_periodic_Train.hdf5",),
        ),
        (
            DataConfig(task="reaction_diffusion", nus=(0.5, 2.0), rhos=(1.0, 10.0)),
            tuple(f"ReacDiff_Nu{nu}_Rho{rho}.hdf5" for nu in (0.5, 2.0) for rho in (1.0, 10.0)),
        ),
    ],
)
def test_files_of_several_parameters_have_the_names_of_the_list_of_downloads(
    config: DataConfig, names: tuple[str, ...], tmp_path: Path
) -> None:
    small = replace(config, train=1, test=1, points=16, frames=2, dt=1e-3)
    lines = data.generate(small, tmp_path)
    assert tuple(line.partition(":")[0] for line in lines) == names
    assert len(data.splits(small, tmp_path).train) == len(names)
