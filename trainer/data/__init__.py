"""Tasks: what the trainer learns. A task is a module with `make` and, if it needs files, `generate`.

    make(config: DataConfig, folder: Path) -> Task            the task, read from the files in `folder`
    generate(config: DataConfig, folder: Path) -> list[str]   the files are there; a line for each
    validation(config: DataConfig, folder: Path) -> Trajectories | None     for `train.evaluate_every`

Each of our own is a `Problem` (problem.py); `splits` reads its files, whatever their dimensions.

A task of your own is `data.task: module:function` in the job file; `function` takes the place of `make`.
The module is found in the code folder of the box. To change one thing of a task that exists, extend it:

    from vastrun.trainer.data import advection
    from vastrun.trainer.data.trajectories import TrajectoryTask

    class Slow(TrajectoryTask):
        def batch(self, step, indices):
            time.sleep(1.0)
            return super().batch(step, indices)

    def make(config, folder):
        return Slow(*advection.load(config, folder))

    generate, validation = advection.generate, advection.validation

Where the data may be kept in memory or on disk (`data.keep`), extend `data.stored.StoredTask` and
`advection.store` in the same way; its `batch` is then called by a thread, or by processes it is pickled to.

This module needs no torch, so that data can be made without waiting for its import.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

from vastrun.contract.config import PARAMETERS, DataConfig, Keep
from vastrun.contract.errors import DataError

if TYPE_CHECKING:
    import torch

    from vastrun.trainer.data.making import Watch
    from vastrun.trainer.data.problem import Outline, Problem
    from vastrun.trainer.data.samples import Splits
    from vastrun.trainer.data.trajectories import Trajectories, Windows
    from vastrun.trainer.sampling.windows import BatchIndices, Symmetry

TASKS = {name: f"vastrun.trainer.data.{name}:make" for name in PARAMETERS}


class Source(Protocol):
    """Trajectories to learn from, wherever they lie. A steady problem has two frames: what is given, and what
    is asked for."""

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
        ...

    def moments(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean and standard deviation of each channel, (2, K) and (2, K).

        Of what is given, and of what is asked for. Raises DataError.
        """
        ...


class Task(Protocol):
    """What is learned, and the batches that the loop asks for."""

    @property
    def train(self) -> Source: ...

    @property
    def test(self) -> Trajectories: ...

    def place(self, device: torch.device) -> None:
        """Move the trajectories to `device`, as far as they are to lie there."""
        ...

    def batch(self, step: int, indices: BatchIndices) -> Windows:
        """Return the windows that `indices` names, a pure function of it.

        `step`, from 0, is for information.
        """
        ...


def make(config: DataConfig, folder: Path, code: Path | None = None) -> Task:
    """Make the task that `config.task` names. Raises DataError."""
    module, name = _find(config.task, code)
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
    watch: Watch | None = None,
) -> Sequence[str]:
    """Make the task's files in `folder`.

    Yields a line for each; files that fit are left alone. Raises DataError.

    Our own are made by `jobs` processes, None: as many as are worth it; `watch` is told how far they are.
    """
    module, _ = _find(config.task, code)
    if config.task in PARAMETERS:
        return module.PROBLEM.generate(config, folder, jobs=jobs, watch=watch)
    writer = getattr(module, "generate", None)
    return [] if writer is None else writer(config, folder)


def validation(config: DataConfig, folder: Path, code: Path | None = None) -> Trajectories | None:
    """Return what is kept back of the samples to train on, to be rolled out meanwhile; None: nothing is.

    Raises DataError.
    """
    module, _ = _find(config.task, code)
    if config.task in PARAMETERS:
        return module.PROBLEM.validation(config, folder)
    reader = getattr(module, "validation", None)
    return None if reader is None else reader(config, folder)


def splits(config: DataConfig, folder: Path) -> Splits:
    """Return what one of our own tasks has to train on and to test on, read as it is asked for.

    Raises DataError.
    """
    return _problem(config).splits(config, folder)


def outline(config: DataConfig) -> Outline:
    """Return the sizes of the data of one of our own tasks; no file is read. Raises DataError."""
    return _problem(config).outline(config)


def _problem(config: DataConfig) -> Problem:
    if config.task not in PARAMETERS:
        raise DataError(f"data.task: expected one of {', '.join(PARAMETERS)}, got {config.task!r}")
    module, _ = _find(config.task, None)
    problem: Problem = module.PROBLEM
    return problem


def _find(task: str, code: Path | None) -> tuple[ModuleType, str]:
    module, _, name = TASKS.get(task, task).partition(":")
    if not name:
        raise DataError(f"data.task: expected one of {', '.join(TASKS)}, or module:function, got {task!r}")
    if code is not None and str(code) not in sys.path:
        sys.path.append(str(code))
    try:
        return importlib.import_module(module), name
    except ImportError as error:
        raise DataError(f"data.task: cannot import {task!r}: {error}") from error
