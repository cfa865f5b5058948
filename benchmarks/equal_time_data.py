"""Data of `equal_time`: parameters are trained at values of their range, and tested at both ends and between.

Training and test set come from different seeds, and no condition of one is in the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from vastrun.trainer import data
from vastrun.trainer.data import Task
from vastrun.trainer.data.conditions import digest_of
from vastrun.trainer.data.trajectories import Trajectories
from vastrun.trainer.job.data_config import DataConfig

SEEDS = (2022, 2023, 2024)
"""Seeds of the data in the table, and of the weights and batches."""
TUNING_SEED = 2021
TEST = 256
_TEST_SEED = 1_000_000
"""Added to the seed for the test set."""
_TRAIN = 512
_VALUES = 8
_HELD_OUT = 64
_LINE, _PLANE = DataConfig(points=256), DataConfig(points=64)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A task of the table."""

    base: DataConfig
    ranges: Mapping[str, tuple[float, float]]
    unseen: Mapping[str, tuple[float, ...]]


CASES: Mapping[str, Case] = {
    "advection": Case(
        base=replace(_LINE, task="advection"), ranges={"betas": (0.4, 1.0)}, unseen={"betas": (0.6,)}
    ),
    "burgers": Case(
        base=replace(_LINE, task="burgers"), ranges={"nus": (0.01, 0.1)}, unseen={"nus": (0.03,)}
    ),
    "darcy": Case(base=replace(_PLANE, task="darcy"), ranges={}, unseen={}),
    "reaction_diffusion": Case(
        base=replace(_LINE, task="reaction_diffusion", rhos=(5.0,), dt=0.05),
        ranges={"nus": (0.01, 0.1)},
        unseen={"nus": (0.03,)},
    ),
    "diffusion_sorption": Case(base=replace(_LINE, task="diffusion_sorption", dt=25.0), ranges={}, unseen={}),
    "shallow_water": Case(base=replace(_PLANE, task="shallow_water", frames=11), ranges={}, unseen={}),
}


@dataclass(frozen=True, kw_only=True)
class Sets:
    """Data of a task and a seed."""

    task: Task
    """Its training set; its own test set is not used."""
    held_out: Trajectories
    """Test samples of the training set's files, by which candidates are chosen."""
    test: Trajectories
    """`TEST` conditions at the ends of the range."""
    conditions: int
    """Number of different conditions in the test set."""
    unseen: Trajectories | None
    """The same conditions at a value between two that are trained; None: the task has no parameter."""


def load(name: str, seed: int, folder: Path, *, device: torch.device, with_test: bool = True) -> Sets:
    """Return the sets of a case; files that are missing are made in `folder`."""
    case = CASES[name]
    values = _VALUES if case.ranges else 1
    train_config = replace(
        case.base,
        seed=seed,
        ranges=case.ranges,
        range_values=_VALUES,
        train=_TRAIN // values,
        test=_HELD_OUT // values,
    )
    task = _make(train_config, folder / f"{name}-{seed}-train")
    held_out = task.test
    task.place(device)
    if not with_test:
        return Sets(task=task, held_out=held_out.to(device), test=held_out, conditions=1, unseen=None)
    test_config = replace(
        case.base, seed=seed + _TEST_SEED, **dict(case.ranges), unseen=case.unseen, train=1, test=TEST
    )
    tests = _make(test_config, folder / f"{name}-{seed}-test")
    unseen = getattr(tests, "unseen", None)
    test = tests.test
    _check_unknown(task, test)
    return Sets(
        task=task,
        held_out=held_out.to(device),
        test=test.to(device),
        conditions=TEST,
        unseen=unseen if unseen is None else unseen.to(device),
    )


def _make(config: DataConfig, folder: Path) -> Task:
    folder.mkdir(parents=True, exist_ok=True)
    data.generate(config, folder)
    return data.make_task(config, folder)


def _check_unknown(task: Task, test: Trajectories) -> None:
    """Raise AssertionError when a test condition is in the training set."""
    train = task.train
    assert isinstance(train, Trajectories)
    known = {digest_of(each) for each in train.fields[:, 0].cpu().numpy()}
    assert known.isdisjoint(digest_of(each) for each in test.fields[:, 0].cpu().numpy())
