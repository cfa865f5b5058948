"""Rivals: the tasks and models that `equal_time` compares, and the space in which each is tuned."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.race import Candidate
from vastrun.trainer import data, user_code
from vastrun.trainer.data import Task
from vastrun.trainer.data.trajectories import Trajectories
from vastrun.trainer.job.data_config import DataConfig

_EXAMPLES = Path(__file__).parents[1] / "examples" / "own_model"
_TUNING_SEED = 2021
"""Seed of the data by which candidates are chosen; no other cell has it."""
_TEST_SEED = 1_000_000
"""Added to the seed for the test set."""
_VALUES = 8
_COUNTS = {"diffusion_reaction_128": (64, 4, 16), "compressible_2d_128": (32, 4, 8)}
"""Trajectories to train on, to choose candidates by and to test on, where 512, 64 and 128 take too long."""
_LINE, _PLANE = DataConfig(points=256), DataConfig(points=64)
_NUS: dict[str, Any] = {"ranges": {"nus": (0.01, 0.1)}, "unseen": {"nus": (0.03,)}}

TASKS: Mapping[str, DataConfig] = {
    "burgers": replace(_LINE, task="burgers", **_NUS),
    "reaction_diffusion": replace(_LINE, task="reaction_diffusion", rhos=(5.0,), dt=0.05, **_NUS),
    "darcy": replace(_PLANE, task="darcy"),
}
"""Tasks on which a claim may rest, with the range of the parameter that is trained and a value between."""
SOLVED: Mapping[str, DataConfig] = {
    "advection": replace(_LINE, task="advection", ranges={"betas": (0.4, 1.0)}, unseen={"betas": (0.6,)}),
    "diffusion_sorption": replace(_LINE, task="diffusion_sorption", dt=25.0),
    "shallow_water": replace(_PLANE, task="shallow_water", frames=11),
}
"""Tasks that a linear map or interpolation solves, so that no claim rests on them."""
REAL: Mapping[str, DataConfig] = {
    "burgers_1024": DataConfig(points=1024, task="burgers", nus=(0.001,)),
    "diffusion_reaction_128": DataConfig(points=128, task="diffusion_reaction"),
    "compressible_2d_128": DataConfig(points=128, task="compressible_2d", frames=11, dt=0.05),
}
"""Grids as users have them."""
ALL = {**TASKS, **SOLVED, **REAL}

SHARED: Mapping[str, tuple[int | str, ...]] = {
    "optimiser": ("adamw 0.001", "adamw 0.002", "adamw 0.004", "adamw 0.008", "muon 0.005", "muon 0.015"),
    "batch": (8, 16, 32),
}
SPACES: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "latent": {"dim": (64, 96), "depth": (1, 2, 4), "patches": (8, 16)},
    "spectral": {"dim": (16, 24, 32), "depth": (3, 4), "modes": (8, 12, 16), "points": (32, 64)},
    "fno": {"dim": (16, 24, 32, 48), "depth": (3, 4), "modes": (8, 16, 24)},
    "unets:UNet": {"width": (8, 16, 32), "depth": (3, 4)},
    "unets:CNextUNet": {"width": (8, 16, 32), "depth": (3, 4)},
    "unets:WarpUNet": {"width": (8, 16, 32), "depth": (3, 4)},
    "transformer:Transformer": {"width": (48, 64, 96), "depth": (2, 4), "patches": (8, 16)},
}
"""Values that are tried, by model and key. `patches`: how many there are along an axis."""


def _by_hand(model: str, optimiser: str, batch: int, **options: int) -> Candidate:
    return Candidate(model=model, optimiser=optimiser, batch=batch, options=options)


BY_HAND: Mapping[str, tuple[Candidate, ...]] = {
    "burgers": (
        _by_hand("spectral", "muon 0.005", 16, dim=32, depth=4, modes=16, points=32),
        _by_hand("fno", "muon 0.015", 16, dim=16, depth=4, modes=32),
    ),
    "reaction_diffusion": (
        _by_hand("spectral", "muon 0.015", 32, dim=16, depth=3, modes=32, points=64),
        _by_hand("fno", "muon 0.03", 32, dim=16, depth=3, modes=32),
    ),
    "burgers_1024": (_by_hand("spectral", "muon 0.005", 16, dim=24, depth=4, modes=48, points=128),),
    "diffusion_reaction_128": (_by_hand("spectral", "muon 0.005", 8, dim=24, depth=4, modes=16, points=32),),
    "compressible_2d_128": (_by_hand("spectral", "muon 0.005", 4, dim=24, depth=4, modes=16, points=32),),
}
"""The best of eight or nine tries by hand of 60 s each, on data that no cell has, by task; on grids as users
have them two tries of 120 s at most."""


def candidates(task: str, model: str, count: int) -> list[Candidate]:
    """Return different candidates of a model, drawn anew for each task: always the same ones."""
    stream, found = random.Random(f"{task} {model}"), list[Candidate]()
    while len(found) < count:
        drawn: dict[str, Any] = {
            key: stream.choice(values) for key, values in {**SHARED, **SPACES[model]}.items()
        }
        optimiser, batch = drawn.pop("optimiser"), drawn.pop("batch")
        candidate = Candidate(model=model, optimiser=optimiser, batch=batch, options=drawn)
        if candidate not in found:
            found.append(candidate)
    return found


@dataclass(frozen=True, kw_only=True)
class Sets:
    """Data of a task and a seed."""

    config: DataConfig
    """Of the training set."""
    task: Task
    held_out: Trajectories
    """Samples that are not trained on, to choose candidates by."""
    tests: Mapping[str, Trajectories]
    """`test`: at both ends of the range of the parameter; `unseen`: at a value between two that are trained.
    Of another seed than the training set."""


def load(name: str, folder: Path, device: torch.device, seed: int = _TUNING_SEED) -> Sets:
    """Return the data of a task; files that are missing are made in `folder`."""
    user_code.add_to_path(_EXAMPLES)
    base = ALL[name]
    values = _VALUES if base.ranges else 1
    train, held_out_count, test = _COUNTS.get(name, (512, 64, 128))
    shares: dict[str, Any] = {"train": train // values, "test": held_out_count // values}
    config = replace(base, seed=seed, unseen={}, range_values=_VALUES, **shares)
    task = _make(config, folder / f"{name}-{seed}")
    held_out = task.test.to(device)
    task.place(device)
    ends: dict[str, Any] = {**base.ranges, "ranges": {}}
    tested = replace(base, seed=seed + _TEST_SEED, train=1, test=test, **ends)
    tests = _make(tested, folder / f"{name}-{seed}-test")
    unseen = getattr(tests, "unseen", None)
    found = {"test": tests.test.to(device), **({} if unseen is None else {"unseen": unseen.to(device)})}
    return Sets(config=config, task=task, held_out=held_out, tests=found)


def _make(config: DataConfig, folder: Path) -> Task:
    folder.mkdir(parents=True, exist_ok=True)
    data.generate(config, folder)
    return data.make_task(config, folder)
