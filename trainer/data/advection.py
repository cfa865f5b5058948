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
    from trainer.data.trajectories import Trajectories

    grid = _grid(config)
    files = [(beta, _read(config, path_of(folder, beta), beta, grid)) for beta in config.betas]
    dt = log10(config.dt)
    train = [((log10(beta), dt), fields[: config.train]) for beta, fields in files]
    test = [((log10(beta), dt), fields[len(fields) - config.test :]) for beta, fields in files]
    return Trajectories.of(train), Trajectories.of(test)


def make(config: DataConfig, folder: Path) -> TrajectoryTask:
    """The task. Raises DataError."""
    from trainer.data.trajectories import TrajectoryTask

    return TrajectoryTask(*load(config, folder))


def path_of(folder: Path, beta: float) -> Path:
    """Where the trajectories of one speed lie; PDEBench's own name for them."""
    return folder / f"1D_Advection_Sols_beta{float(beta)}.hdf5"


def _read(config: DataConfig, path: Path, beta: float, grid: Grid) -> pdebench.Fields:
    present = pdebench.attributes(path) or {}
    found = present.get("beta", beta)
    if found != beta:
        raise DataError(f"{path}: expected the attribute beta to be {beta}, got {found}")
    return pdebench.read(path, grid=grid, at_least=config.train + config.test)


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
