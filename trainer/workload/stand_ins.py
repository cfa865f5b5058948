"""Stand-ins: for what a computer that only foretells does not have: data, other ranks, checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as torch_dist
from torch import Tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from trainer import data
from trainer.checkpoints import Checkpointer
from trainer.contract.config import DataConfig, Keep
from trainer.data.problem import Outline
from trainer.data.trajectories import Trajectories, TrajectoryTask, Windows
from trainer.distributed.group import Ranks
from trainer.distributed.rank import Rank
from trainer.engine.session import Session
from trainer.heartbeat import Activity, Heartbeat
from trainer.models.latent_operator import LatentOperator


@dataclass(frozen=True, kw_only=True)
class RanksAlone(Ranks):
    """A rank whose others say what it says."""

    def highest(self, *values: float) -> list[float]:
        return list(values)

    def told_by_all(self, value: Any) -> list[Any]:
        return [value] * self.rank.world_size


def ranks_alone(world_size: int) -> Ranks:
    """Be the first of so many ranks; messages to the others are made ready, and not sent."""
    torch_dist.init_process_group("fake", rank=0, world_size=world_size, store=FakeStore())
    rank = Rank(rank=0, local_rank=0, world_size=world_size, box=Path("nowhere"))
    group = torch_dist.group.WORLD
    assert group is not None
    return RanksAlone(rank=rank, device=torch.device("cpu"), control=group)


class Unsaved(Checkpointer):
    """Keeps nothing."""

    def __init__(self) -> None: ...


class Unheard(Heartbeat):
    """Nobody watches."""

    def __init__(self) -> None: ...

    def beat(self, step: int, activity: Activity = "step") -> None: ...


class EmptyTrajectories(Trajectories):
    """As many as the job asks for, of their shape."""

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return any: what is read takes as long whatever it says."""
        return torch.zeros(2, self.channels), torch.ones(2, self.channels)


def task_of(config: DataConfig) -> TrajectoryTask:
    """Stand in for a task of our own, with its trajectories where the job keeps them. Raises DataError."""
    outline = data.outline(config)
    return TrajectoryTask(
        _trajectories(outline, outline.train, config.keep), _trajectories(outline, outline.test, "device")
    )


def empty_windows(session: Session, task: int) -> Windows:
    """Return a micro-batch of a task."""
    size, space = session.plan.micro_batch, session.task_schedule.sample_plans[task].space
    operator = session.operator
    latents = None
    if session.config.latents == "disk" and isinstance(operator, LatentOperator):
        latents = torch.empty(size, len(operator.encoders[task].position), session.config.model.dim)
    return Windows(
        fields=torch.empty(size, space.unroll + 1, space.channels, *space.grid),
        noise=torch.empty(size, space.channels, *space.grid),
        level=torch.empty(size),
        conditions=torch.empty(size, operator.domains[task].conditions),
        latents=latents,
        task=task,
    )


def _trajectories(outline: Outline, count: int, keep: Keep) -> EmptyTrajectories:
    """Of those in files only one is here: the others are views of it."""
    here = count if keep == "device" else 1
    return EmptyTrajectories(
        fields=torch.empty(here, *outline.frame_shape).expand(count, *outline.frame_shape),
        conditions=torch.empty(count, outline.conditions),
        symmetry=outline.symmetry,
        steady=outline.steady,
    )
