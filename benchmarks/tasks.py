"""Every built-in task from a file in PDEBench's layout to its scores, on ranks that change.

For each task: a file with twice the points and frames of the job is made, and read thinned. The training is
killed after half of its 200 steps on two ranks, ended by one, and rolled out. A row has the seconds of each
part, the file's MB and the error beside the lowest one that needs no learning. False when that is lower.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.box import prepare
from benchmarks.resumed import train_on
from vastrun.contract import layout
from vastrun.contract.scores import lowest_floor
from vastrun.trainer.job.config import ModelConfig, OptimConfig, TrainConfig, WandbConfig
from vastrun.trainer.job.data_config import PARAMETERS, DataConfig

STEPS = 200
_RANKS, _LATER_RANKS = 2, 1
_LINE = DataConfig(train=128, test=16, points=64, frames=11, dt=0.1)
_PLANE = DataConfig(train=48, test=8, points=32, frames=6, dt=0.1)
DATA: dict[str, DataConfig] = {
    "advection": replace(_LINE, betas=(1.0,)),
    "burgers": replace(_LINE, nus=(0.01,)),
    "reaction_diffusion": replace(_LINE, nus=(0.01,), rhos=(5.0,)),
    "diffusion_sorption": replace(_LINE, dt=25.0),
    "compressible_1d": _LINE,
    "darcy": _PLANE,
    "diffusion_reaction": replace(_PLANE, dt=0.5),
    "shallow_water": _PLANE,
    "compressible_2d": replace(_PLANE, points=16, machs=(0.5,)),
    "incompressible": replace(_PLANE, dt=0.2),
    "compressible_3d": DataConfig(train=8, test=2, points=16, frames=4, dt=0.02, machs=(0.5,)),
}
"""Data of each task, as they are read."""
_FINER = 2
_COLUMNS = (
    "task",
    "made, s",
    "file, MB",
    "trained, s",
    "resumed, s",
    "**rollout nRMSE**",
    "lowest floor",
    "its nRMSE",
)


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """A task's row."""

    task: str
    made_s: float
    file_mb: float
    trained_s: float
    resumed_s: float
    scores: dict[str, float]

    @property
    def cells(self) -> list[str]:
        """The row's text."""
        floor = lowest_floor(self.scores)
        assert floor is not None
        return [
            self.task,
            f"{self.made_s:.1f}",
            f"{self.file_mb:.1f}",
            f"{self.trained_s:.0f}",
            f"{self.resumed_s:.0f}",
            f"**{self.scores['rollout_nrmse']:.3f}**",
            floor.name,
            f"{floor.value:.3f}",
        ]

    @property
    def has_learned(self) -> bool:
        """Whether the model is better than what needs no learning."""
        floor = lowest_floor(self.scores)
        return floor is not None and self.scores["rollout_nrmse"] < floor.value


def run(steps: int = STEPS) -> bool:
    """Print a row for each task."""
    assert set(DATA) == set(PARAMETERS), "a task without a row"
    print(f"| {' | '.join(_COLUMNS)} |\n|{' --- |' * len(_COLUMNS)}", flush=True)
    results = []
    for task, data in DATA.items():
        with tempfile.TemporaryDirectory() as root:
            results.append(measure(Path(root) / "box", replace(data, task=task), steps))
        print(f"| {' | '.join(results[-1].cells)} |", flush=True)
    return all(result.has_learned for result in results)


def measure(folder: Path, data: DataConfig, steps: int) -> TaskResult:
    """Take one task through all of it. Raises RuntimeError when a part fails."""
    config = replace(
        TrainConfig(),
        steps=steps,
        batch=16,
        unroll=2,
        log_every=10,
        checkpoint_every=steps // 2,
        data=(data,),
        model=ModelConfig(dim=48, depth=2, patch=4),
        optim=OptimConfig(name="muon", lr=0.01),
        wandb=WandbConfig(mode="off"),
    )
    finer = replace(
        data, points=_FINER * data.points, frames=_FINER * (data.frames - 1) + 1, dt=data.dt / _FINER
    )
    began = time.monotonic()
    box = prepare(folder, config, made=(finer,))
    made_s = time.monotonic() - began
    trained_s = _timed(lambda: train_on(box, ranks=_RANKS, kill_at=steps // 2 + 5))
    resumed_s = _timed(lambda: train_on(box, ranks=_LATER_RANKS))
    if not list((box / layout.EVALUATION).glob("*.png")):
        raise RuntimeError(f"{data.task}: nothing was drawn")
    return TaskResult(
        task=data.task,
        made_s=made_s,
        file_mb=sum(path.stat().st_size for path in (box / layout.DATA).glob("*.h*5")) / 1e6,
        trained_s=trained_s,
        resumed_s=resumed_s,
        scores=json.loads((box / layout.FINAL).read_text())["scores"],
    )


def _timed(work: Callable[[], None]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began
