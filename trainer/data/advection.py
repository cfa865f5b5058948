"""1-D advection, u_t + beta u_x = 0 on the unit circle, solved exactly: u(x, t) = u0(x - beta t)."""

from __future__ import annotations

from collections.abc import Iterator
from math import log10
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trainer.config import DataConfig
from trainer.data import pdebench
from trainer.data.faults import DataError
from trainer.data.initial import InitialConditions, draw
from trainer.data.pdebench import Grid

if TYPE_CHECKING:
    from trainer.data.stored import StoredTask, StoredTrajectories
    from trainer.data.trajectories import Trajectories, TrajectoryTask

GENERATOR = "vastrun advection 1"
_CHUNK = 256
_TRAIN_STREAM, _TEST_STREAM = 0, 1


def solve(u0: InitialConditions, beta: float, grid: Grid) -> NDArray[np.float64]:
    """The exact solution on `grid`: (n, T, X)."""
    return u0(grid.x[None, :] - beta * grid.t[:, None])


def generate(config: DataConfig, folder: Path) -> list[str]:
    """Each speed has its file in `folder`; files that fit the config, or are not ours, are left alone."""
    grid = _grid(config)
    lines = []
    for beta in config.betas:
        path = path_of(folder, beta)
        attrs = _attrs(config, beta)
        present = pdebench.attributes(path)
        if present is not None and (present == attrs or "generator" not in present):
            lines.append(f"{path.name}: present")
            continue
        n = config.train + config.test
        pdebench.write(path, _chunks(config, beta, grid), grid=grid, n=n, attrs=attrs)
        lines.append(f"{path.name}: {n} trajectories of {grid.frames} frames and {grid.points} points made")
    return lines


def load(config: DataConfig, folder: Path) -> tuple[Trajectories, Trajectories]:
    """What to train on and what to test on: in every file the first `train` and the last `test` trajectories.

    All files begin from the same initial conditions: no test shape is seen in training at another speed.
    Raises DataError.
    """
    return _read(config, folder, slice(config.train)), _read(config, folder, slice(-config.test, None))


def store(config: DataConfig, folder: Path) -> tuple[StoredTrajectories, Trajectories]:
    """As `load`, but what to train on stays in memory, or where `config.keep` is disk, there."""
    from trainer.data.stored import Part, StoredTrajectories

    parts = [
        Part(path=_checked(config, folder, beta), count=config.train, conditions=_conditions(config, beta))
        for beta in config.betas
    ]
    train = StoredTrajectories(parts, frames=config.frames, points=config.points, keep=config.keep)
    return train, _read(config, folder, slice(-config.test, None))


def make(config: DataConfig, folder: Path) -> TrajectoryTask | StoredTask:
    """The task. Raises DataError."""
    from trainer.data.stored import StoredTask
    from trainer.data.trajectories import TrajectoryTask

    if config.keep == "device":
        return TrajectoryTask(*load(config, folder))
    return StoredTask(*store(config, folder))


def path_of(folder: Path, beta: float) -> Path:
    """Where the trajectories of one speed lie; PDEBench's own name for them."""
    return folder / f"1D_Advection_Sols_beta{float(beta)}.hdf5"


def _read(config: DataConfig, folder: Path, rows: slice) -> Trajectories:
    from trainer.data.trajectories import Trajectories

    return Trajectories.of(
        [
            (_conditions(config, beta), pdebench.read(_checked(config, folder, beta), rows))
            for beta in config.betas
        ]
    )


def _checked(config: DataConfig, folder: Path, beta: float) -> Path:
    """The file of one speed, which has its layout."""
    path = path_of(folder, beta)
    found = (pdebench.attributes(path) or {}).get("beta", beta)
    if found != beta:
        raise DataError(f"{path}: expected the attribute beta to be {beta}, got {found}")
    pdebench.check(path, grid=_grid(config), at_least=config.train + config.test)
    return path


def _conditions(config: DataConfig, beta: float) -> tuple[float, ...]:
    return log10(beta), log10(config.dt)


def _chunks(config: DataConfig, beta: float, grid: Grid) -> Iterator[NDArray[np.float64]]:
    for stream, n in ((_TRAIN_STREAM, config.train), (_TEST_STREAM, config.test)):
        rng = np.random.default_rng([config.seed, stream])
        for begin in range(0, n, _CHUNK):
            yield solve(draw(min(_CHUNK, n - begin), rng), beta, grid)


def _attrs(config: DataConfig, beta: float) -> dict[str, pdebench.Attribute]:
    return {
        "generator": GENERATOR,
        "beta": float(beta),
        "seed": config.seed,
        "train": config.train,
        "test": config.test,
        "points": config.points,
        "frames": config.frames,
        "dt": config.dt,
    }


def _grid(config: DataConfig) -> Grid:
    return Grid(points=config.points, frames=config.frames, dt=config.dt)
