"""Tasks: data and batches to learn from. A task of a user is a module with `make` and maybe `generate`.

    make(config: DataConfig, folder: Path) -> Task            read the task from the files in `folder`
    generate(config: DataConfig, folder: Path) -> list[str]   make missing files; return a line for each
    validation(config: DataConfig, folder: Path) -> Trajectories | None     for `train.evaluate_every`

Each built-in task is a `Problem` (problem.py); `splits` reads its files, whatever their dimensions.

A task in your code is `data.task: module:function` in the job file; `function` takes the place of `make`.
The module is imported from the code folder of the box. To change one part of a built-in task, extend it:

    from vastrun.trainer.data import advection
    from vastrun.trainer.data.trajectories import TrajectoryTask

    class Slow(TrajectoryTask):
        def batch(self, step, indices):
            time.sleep(1.0)
            return super().batch(step, indices)

    def make(config, folder):
        return Slow(*advection.load(config, folder))

    generate, validation = advection.generate, advection.validation

If the data may stay in memory or on disk (`data.keep`), extend `data.stored.StoredTask` and
`advection.store` in the same way; its `batch` is then called in a thread, or in processes it is pickled to.

This module does not import torch, so that data can be made without waiting for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, cast

from vastrun.trainer import user_code
from vastrun.trainer.errors import DataError
from vastrun.trainer.job.data_config import PARAMETERS, DataConfig, Keep

if TYPE_CHECKING:
    import numpy as np
    import torch

    from vastrun.trainer.data.problem import DataSizes, Problem
    from vastrun.trainer.data.sample_writer import ProgressCallback
    from vastrun.trainer.data.samples import Samples, Splits
    from vastrun.trainer.data.trajectories import Trajectories, Windows
    from vastrun.trainer.sampling.windows import BatchIndices, Symmetry


CoarseSolver = Callable[["np.ndarray", Sequence[float]], "np.ndarray"]
"""Maps first frames (n, K, *cells) and their conditions to trajectories (n, T, K, *cells)."""


class Source(Protocol):
    """Training set: trajectories on the device, in memory or on disk. A steady problem has two frames: input
    and target."""

    keep: Keep
    steady: bool
    symmetry: Symmetry

    def __len__(self) -> int: ...

    @property
    def frames(self) -> int: ...

    @property
    def channels(self) -> int: ...

    @property
    def grid(self) -> Sequence[int]: ...

    @property
    def conditions(self) -> torch.Tensor:
        """(N, C) float32"""

    def moments(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean and standard deviation of each channel, (2, K) and (2, K): of input and target.

        Raises DataError.
        """


class Task(Protocol):
    """Training set, test set, and the batches that the loop requests."""

    @property
    def train(self) -> Source: ...

    @property
    def test(self) -> Trajectories: ...

    def place(self, device: torch.device) -> None:
        """Move the trajectories that belong there to `device`."""

    def batch(self, step: int, indices: BatchIndices) -> Windows:
        """Return the windows of `indices`, as a pure function of them.

        `step`, counted from 0, is for information only.
        """


def make_task(config: DataConfig, folder: Path, code: Path | None = None) -> Task:
    """Make the task named by `config.task`. Raises DataError."""
    if config.task in PARAMETERS:
        return cast("Task", _problem(config).make(config, folder))
    module, name = _import_task(config.task, code)
    try:
        maker = getattr(module, name)
    except AttributeError as error:
        raise DataError(f"data.task: {error}") from error
    task: Task = maker(config, folder)
    return task


def generate(
    config: DataConfig,
    folder: Path,
    code: Path | None = None,
    *,
    jobs: int | None = 1,
    on_progress: ProgressCallback | None = None,
) -> Sequence[str]:
    """Make the task's files in `folder`; files that match the config are kept.

    Returns a line for each file. Raises DataError. Built-in tasks use `jobs` processes (None: as many as pay
    off) and report to `on_progress`.
    """
    if config.task in PARAMETERS:
        return _problem(config).generate(config, folder, jobs=jobs, on_progress=on_progress)
    module, _ = _import_task(config.task, code)
    writer = getattr(module, "generate", None)
    return [] if writer is None else writer(config, folder)


def validation(config: DataConfig, folder: Path, code: Path | None = None) -> Trajectories | None:
    """Return the samples held out for validation during the training; None: there are none.

    Raises DataError.
    """
    if config.task in PARAMETERS:
        return _problem(config).validation(config, folder)
    module, _ = _import_task(config.task, code)
    reader = getattr(module, "validation", None)
    return None if reader is None else reader(config, folder)


def unseen(config: DataConfig, folder: Path) -> Samples | None:
    """Return the test samples of a built-in task at parameters that are not trained; None: there are none.

    They are read on access. Raises DataError.
    """
    return _problem(config).unseen_samples(config, folder)


def splits(config: DataConfig, folder: Path) -> Splits:
    """Return the training, validation and test samples of a built-in task, read on access.

    Raises DataError.
    """
    return _problem(config).splits(config, folder)


def data_sizes(config: DataConfig) -> DataSizes:
    """Return the data sizes of a built-in task without reading a file. Raises DataError."""
    return _problem(config).data_sizes(config)


def coarse_solver(config: DataConfig) -> CoarseSolver | None:
    """Return our solver of a built-in task, for fields on any grid; None for other tasks, and without one."""
    if config.task not in PARAMETERS or (problem := _problem(config)).continue_from is None:
        return None
    return partial(problem.solve_from, config)


def _problem(config: DataConfig) -> Problem:
    if config.task not in PARAMETERS:
        raise DataError(f"data.task: expected one of {', '.join(PARAMETERS)}, got {config.task!r}")
    family = "compressible" if config.task.startswith("compressible") else config.task
    module = import_module(f"{__name__}.{family}")
    problem: Problem = module.PROBLEM if family == config.task else module.PROBLEMS[config.task]
    return problem


def _import_task(task: str, code: Path | None) -> tuple[ModuleType, str]:
    module, _, name = task.partition(":")
    if not name:
        raise DataError(
            f"data.task: expected one of {', '.join(PARAMETERS)}, or module:function, got {task!r}"
        )
    try:
        return user_code.import_module(module, code), name
    except ImportError as error:
        raise DataError(f"data.task: cannot import {task!r}: {error}") from error
