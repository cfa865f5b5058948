"""Session: all that a rank trains with, set up in the one order that works."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import nn

from trainer import data, layout
from trainer.blocks import prepare
from trainer.checkpoint import Checkpoints, load_newest
from trainer.config import TrainConfig
from trainer.data import Task
from trainer.dist import Ranks
from trainer.ema import Ema
from trainer.errors import ConfigError
from trainer.models.latent_operator import LatentOperator
from trainer.objective import UnrollLoss
from trainer.optim import make_optimizer
from trainer.plan import Facts, Plan, make_plan
from trainer.precision import autocast, computes_bf16, scaler_of
from trainer.records import write_json
from trainer.sampler import Space
from trainer.schedule import Schedule
from trainer.strategies import STRATEGIES
from trainer.strategies.strategy import Strategy


@dataclass(frozen=True, kw_only=True)
class Session:
    """What a rank holds between its first step and its last."""

    config: TrainConfig
    plan: Plan
    ranks: Ranks
    task: Task
    space: Space
    operator: LatentOperator
    model: nn.Module
    """The operator within its objective, spread over the ranks."""
    strategy: Strategy
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    scaler: torch.amp.GradScaler
    ema: Ema | None
    checkpoints: Checkpoints
    start: int
    """Steps that were done before."""
    loss: float | None
    """The last one that was told before."""

    def autocast(self) -> AbstractContextManager:
        """Around every forward pass."""
        return autocast(self.plan.precision, self.ranks.device)

    def state(self, step: int, loss: float | None) -> dict[str, Any]:
        """What a checkpoint holds. No random state: what is random is a function of the seed and the step."""
        return {
            "step": step,
            "loss": loss,
            "config": asdict(self.config),
            "model": self.operator.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "scaler": self.scaler.state_dict(),
            "ema": self.ema.state_dict() if self.ema else None,
        }


class ResumeError(Exception):
    """The state to continue from does not fit this job."""


def set_up(ranks: Ranks, config: TrainConfig) -> Session:
    """This rank is ready for its next step.

    The order matters: the device before the groups, the seed before the model, activation checkpointing
    before compilation, both before the wrapper, the wrapper before the optimiser (one made earlier would
    train parameters that nobody uses), the checkpoint last.
    """
    torch.set_num_threads(config.threads)
    torch.manual_seed(config.seed)
    box, device = ranks.rank.box, ranks.device
    task = data.make(config.data, box / layout.DATA, box / layout.CODE)
    space = _space(config, task)
    with torch.device("meta"):
        operator = LatentOperator(
            config.model, points=space.points, conditions=task.train.conditions.shape[1]
        )
    plan = _plan(ranks, config, space, operator)
    task.place(device)
    objective = UnrollLoss(operator)
    prepare(objective, config)
    strategy = STRATEGIES[plan.strategy]
    model = strategy.wrap(objective, config, device)
    operator.normalise_by(task.train.fields)
    session = Session(
        config=config,
        plan=plan,
        ranks=ranks,
        task=task,
        space=space,
        operator=operator,
        model=model,
        strategy=strategy,
        optimizer=make_optimizer(operator, config.optim),
        schedule=Schedule(config.optim, config.steps),
        scaler=scaler_of(plan.precision, device),
        ema=Ema(operator, config.ema) if config.ema else None,
        checkpoints=Checkpoints(box / layout.CHECKPOINTS, keep=config.keep_checkpoints),
        start=0,
        loss=None,
    )
    session = _resume(session)
    if ranks.rank.is_first:
        _introduce(session)
    return session


def _space(config: TrainConfig, task: Task) -> Space:
    return Space(
        trajectories=len(task.train),
        frames=task.train.frames,
        points=task.train.points,
        unroll=config.unroll,
    )


def _plan(ranks: Ranks, config: TrainConfig, space: Space, operator: LatentOperator) -> Plan:
    """The plan, the same on all ranks. When it cannot be made, all leave and one of them says why."""
    device = ranks.device
    facts = Facts(
        world_size=ranks.rank.world_size,
        device=device.type,
        memory=torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None,
        bf16=computes_bf16(device),
        parameters=sum(parameter.numel() for parameter in operator.parameters()),
        windows=space.trajectories * (space.frames - space.unroll),
        micro_batch_cap=ranks.rank.micro_batch_cap,
    )
    try:
        found: Plan | ConfigError = make_plan(config, facts)
    except ConfigError as error:
        found = error
    everywhere = ranks.told_by_all(found)
    for rank, theirs in enumerate(everywhere):
        if isinstance(theirs, ConfigError):
            theirs.told_elsewhere = rank != ranks.rank.rank
            raise theirs
    return everywhere[0]


def _resume(session: Session) -> Session:
    """Loads the newest intact checkpoint, of this run or else of the one it continues."""
    ranks, config, box = session.ranks, session.config, session.ranks.rank.box
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
        return session
    if state["config"]["model"] != asdict(config.model):
        raise ResumeError(
            f"the checkpoint's model is {state['config']['model']}, the job's is {asdict(config.model)}"
        )
    session.operator.load_state_dict(state["model"])
    session.optimizer.load_state_dict(state["optimizer"])
    session.schedule.load_state_dict(state["schedule"])
    session.scaler.load_state_dict(state["scaler"])
    if session.ema:
        session.ema.load_state_dict(state["ema"])
    return replace(session, start=start, loss=state["loss"])


def _introduce(session: Session) -> None:
    config, plan = session.config, session.plan
    write_json(session.ranks.rank.box / layout.PLAN, asdict(plan))
    size = sum(parameter.numel() for parameter in session.operator.parameters())
    begin = f"resumes after step {session.start}" if session.start else "begins"
    print(
        f"training {begin}: {plan.world_size} ranks on {session.ranks.device.type}, {plan}, "
        f"{size:,} parameters, {config.steps} steps",
        flush=True,
    )
