"""Session: all that a rank trains with, set up in the one order that works."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from trainer import data, layout
from trainer.checkpoint import Checkpoints, load_newest
from trainer.config import TrainConfig
from trainer.data import Task
from trainer.dist import Ranks, join
from trainer.models.latent_operator import LatentOperator
from trainer.objective import UnrollLoss
from trainer.optim import adamw
from trainer.rank import Rank, TrainJob
from trainer.sampler import Space
from trainer.strategies import parallelize


@dataclass(frozen=True, kw_only=True)
class Session:
    """What a rank holds between its first step and its last."""

    config: TrainConfig
    ranks: Ranks
    task: Task
    space: Space
    operator: LatentOperator
    model: nn.Module
    """The operator within its objective, spread over the ranks."""
    optimizer: torch.optim.Optimizer
    checkpoints: Checkpoints
    start: int
    """Steps that were done before."""
    loss: float | None
    """The last one that was told before."""

    def state(self, step: int, loss: float | None) -> dict[str, Any]:
        """What a checkpoint holds. No random state: what is random is a function of the seed and the step."""
        return {
            "step": step,
            "loss": loss,
            "config": asdict(self.config),
            "model": self.operator.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }


class ResumeError(Exception):
    """The state to continue from does not fit this job."""


def set_up(rank: Rank, job: TrainJob, config: TrainConfig) -> Session:
    """This rank is ready for its next step.

    The order matters: the device before the groups, the seed before the model, the wrapper before the
    optimiser (one made earlier would train parameters that nobody uses), the checkpoint last.
    """
    torch.set_num_threads(config.threads)
    ranks = join(rank, job)
    torch.manual_seed(config.seed)
    task = data.make(config.data, rank.box / layout.DATA, rank.box / layout.CODE)
    task.place(ranks.device)
    operator = _operator(config, task, ranks.device)
    model = parallelize(UnrollLoss(operator), config.strategy, ranks.device)
    optimizer = adamw(model, config.optim)
    start, loss = _resume(ranks, config, operator, optimizer)
    if rank.is_first:
        _introduce(ranks, config, operator, start)
    return Session(
        config=config,
        ranks=ranks,
        task=task,
        space=Space(
            trajectories=len(task.train),
            frames=task.train.frames,
            points=task.train.points,
            unroll=config.unroll,
        ),
        operator=operator,
        model=model,
        optimizer=optimizer,
        checkpoints=Checkpoints(rank.box / layout.CHECKPOINTS, keep=config.keep_checkpoints),
        start=start,
        loss=loss,
    )


def _operator(config: TrainConfig, task: Task, device: torch.device) -> LatentOperator:
    train = task.train
    operator = LatentOperator(config.model, points=train.points, conditions=train.conditions.shape[1]).to(
        device
    )
    operator.normalise_by(train.fields)
    return operator


def _resume(
    ranks: Ranks, config: TrainConfig, operator: LatentOperator, optimizer: torch.optim.Optimizer
) -> tuple[int, float | None]:
    """Loads the newest intact checkpoint, of this run or else of the one it continues: (steps done, loss)."""
    box = ranks.rank.box
    state, faults = load_newest((box / layout.CHECKPOINTS, box / layout.RESUME), ranks.device)
    if ranks.rank.is_first:
        for fault in faults:
            print(f"checkpoint: {fault}", flush=True)
    start = 0 if state is None else state["step"]
    latest, negative_earliest = ranks.highest(start, -start)
    if latest != -negative_earliest:
        raise ResumeError(
            f"ranks found different checkpoints: steps {-negative_earliest:.0f} and {latest:.0f}"
        )
    if state is None:
        return 0, None
    if state["config"]["model"] != asdict(config.model):
        raise ResumeError(
            f"the checkpoint's model is {state['config']['model']}, the job's is {asdict(config.model)}"
        )
    operator.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return start, state["loss"]


def _introduce(ranks: Ranks, config: TrainConfig, operator: LatentOperator, start: int) -> None:
    size = sum(parameter.numel() for parameter in operator.parameters())
    begin = f"resumes after step {start}" if start else "begins"
    print(
        f"training {begin}: {ranks.rank.world_size} ranks on {ranks.device.type}, {config.strategy}, "
        f"{size:,} parameters, batch {config.batch}, {config.steps} steps",
        flush=True,
    )
