"""PDEBench's own files: read like ours, thinned to the points and frames that a job asks for."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from tests.trainer.data.published import FILES
from vastrun.contract.config import PARAMETERS, DataConfig, Keep
from vastrun.contract.errors import DataError
from vastrun.trainer import data
from vastrun.trainer.data.inspection import check, info
from vastrun.trainer.engine.session import space_of
from vastrun.trainer.sampling.windows import draw_indices

PUBLISHED = {
    "advection": DataConfig(task="advection", betas=(1.0,), points=1024, frames=201, dt=0.01),
    "burgers": DataConfig(task="burgers", nus=(0.1,), points=1024, frames=201, dt=0.01),
    "darcy": DataConfig(task="darcy", points=128),
    "diffusion_reaction": DataConfig(task="diffusion_reaction", points=128, frames=101, dt=0.05),
    "shallow_water": DataConfig(task="shallow_water", points=128, frames=101, dt=0.01),
}
"""What is in the files: the shapes that were published, but few samples."""
SAMPLES = {"train": 2, "test": 1}
TASKS = sorted(FILES)
THINNED = {
    task: replace(config, **SAMPLES, points=config.points // 4, frames=21, dt=config.dt * 5)
    for task, config in PUBLISHED.items()
}


def published(task: str, folder: Path) -> np.ndarray:
    """Writes a file of PDEBench's; what is in it, as it is to be read."""
    config = PUBLISHED[task]
    t, x = config.frames, config.points
    n = sum(SAMPLES.values())
    rng = np.random.default_rng(1)
    with h5py.File(folder / FILES[task], "w") as file:
        if task in ("advection", "burgers"):
            values = rng.standard_normal((n, t, 1, x), dtype=np.float32)
            file["tensor"] = values[:, :, 0]
            file["x-coordinate"] = np.linspace(0, 1, x, dtype="f4")
            file["t-coordinate"] = (np.arange(t + 1) * config.dt).astype("f4")
        elif task == "darcy":
            values = rng.standard_normal((n, 2, x, x), dtype=np.float32)
            file["nu"], file["tensor"] = values[:, 0], values[:, 1:]
            file["x-coordinate"] = file["y-coordinate"] = np.linspace(0, 1, x, dtype="f4")
            file.attrs["beta"] = 1.0
        else:
            channels = {"diffusion_reaction": 2}.get(task, 1)
            values = rng.standard_normal((n, t, channels, x, x), dtype=np.float32)
            for row in range(n):
                group = file.create_group(f"{row:04d}")
                group["data"] = np.moveaxis(values[row], 1, -1)
                group["grid/x"] = group["grid/y"] = np.linspace(-1, 1, x, dtype="f4")
                group["grid/t"] = (np.arange(t) * config.dt).astype("f4")
    return values


def stride_descriptions(task: str, values: np.ndarray) -> np.ndarray:
    if task == "darcy":
        return values[..., ::4, ::4]
    fewer = values[:, :101:5, ..., ::4]
    return fewer if fewer.ndim == 4 else fewer[..., ::4, :]


def test_every_task_has_its_file() -> None:
    assert set(FILES) == set(PUBLISHED) == set(PARAMETERS)


@pytest.mark.parametrize("task", TASKS)
def test_a_published_file_is_left_alone_and_read_as_it_is_or_thinned(task: str, tmp_path: Path) -> None:
    whole = published(task, tmp_path)
    for config, values in (
        (replace(PUBLISHED[task], **SAMPLES), whole),
        (THINNED[task], stride_descriptions(task, whole)),
    ):
        assert data.generate(config, tmp_path) == [f"{FILES[task]}: present"]
        splits = data.splits(config, tmp_path)
        np.testing.assert_array_equal(splits.train.read([1, 0]), values[[1, 0]])
        np.testing.assert_array_equal(splits.test.read([0]), values[2:])
    steady = splits.train.steady
    moments = data.make(config, tmp_path).train.moments()
    axes = tuple(axis for axis in range(values.ndim) if axis != (1 if steady else 2))
    for found, of in zip(moments, (np.mean, np.std), strict=True):
        expected = of(values[:2], axis=axes, dtype=np.float64)
        rows = expected[:, None] if steady else np.stack([expected, expected])
        np.testing.assert_allclose(found, rows, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("task", TASKS)
def test_thinned_windows_are_the_same_wherever_the_file_is_read_from(task: str, tmp_path: Path) -> None:
    published(task, tmp_path)
    keeps: tuple[Keep, ...] = ("device", "host", "disk")
    tasks = [data.make(replace(THINNED[task], keep=keep), tmp_path) for keep in keeps]
    chosen = draw_indices(0, 0, batch=2, noise=0.0, space=space_of(tasks[0].train, 3))
    expected, *others = (task.batch(0, chosen).fields for task in tasks)
    for found in others:
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("task", ["burgers", "diffusion_reaction", "darcy"])
def test_a_check_and_a_description_tell_how_much_of_a_file_is_read(task: str, tmp_path: Path) -> None:
    published(task, tmp_path)
    times = "" if task == "darcy" else " and 1 of 5 frames"
    told = f"  {FILES[task]}: 1 of 4 points along an axis{times} are read"
    assert check(THINNED[task], tmp_path)[1:] == check(THINNED[task], tmp_path, quick=True)[1:] == [told]
    assert info(tmp_path, [THINNED[task]])[-1] == f"  1 of 4 points along an axis{times} are read"
    as_it_is = replace(PUBLISHED[task], **SAMPLES)
    assert len(check(as_it_is, tmp_path)) == 1
    assert not any("are read" in line for line in info(tmp_path, [as_it_is]) + info(tmp_path))


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
    task = data.make(replace(THINNED["burgers"], keep=keep), tmp_path)
    mean, _ = task.train.moments()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (mean[0].item(), task.test.fields.mean().item()) == (0.5, 3.0)
    assert peak < 50e6
