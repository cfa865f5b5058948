"""Session: everything a rank trains with, from its first step to its last."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor, nn

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.records import write_json
from vastrun.trainer.checkpoints import Checkpointer, TrainerState, tensors_of
from vastrun.trainer.data import Task
from vastrun.trainer.distributed.clock import StepClock
from vastrun.trainer.distributed.group import Ranks, reshard
from vastrun.trainer.distributed.rank import Activity
from vastrun.trainer.engine.current_stage import CurrentStage, state_fields
from vastrun.trainer.engine.determinism import describe_guarantee, describe_run, device_name
from vastrun.trainer.engine.ema import Ema
from vastrun.trainer.engine.optimiser import LearningRateSchedule
from vastrun.trainer.engine.plan import Plan
from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.loading import describe_loader
from vastrun.trainer.loading.loader import Loader
from vastrun.trainer.models.operator import Operator
from vastrun.trainer.models.precision import autocast
from vastrun.trainer.models.weights import count_frozen, count_parameters
from vastrun.trainer.sampling.task_schedule import TaskSchedule
from vastrun.trainer.stages.objective import Objective
from vastrun.trainer.strategies import Strategy


@dataclass(frozen=True, kw_only=True)
class Session:
    """Everything a rank trains with, from its first step to its last."""

    job: Job
    config: TrainConfig
    plan: Plan
    ranks: Ranks
    tasks: tuple[Task, ...]
    task_schedule: TaskSchedule
    loader: Loader
    objective: Objective
    model: nn.Module
    """The objective, wrapped by the strategy."""
    strategy: Strategy
    optimizer: torch.optim.Optimizer
    schedule: LearningRateSchedule
    scaler: torch.amp.GradScaler
    ema: Ema | None
    checkpoints: Checkpointer
    clock: StepClock
    wandb_id: str
    """W&B run id; that of the training that this one continues, if there is one."""
    stage: CurrentStage
    """The stage that is trained. Steps count from its first one; `stage.run_step` counts those of the run."""
    start: int = 0
    """Steps of the stage done before this start."""
    loss: float | None = None
    """Last loss logged before the resume."""

    @property
    def operator(self) -> Operator:
        """Operator of the objective."""
        return self.objective.operator

    def autocast(self) -> AbstractContextManager:
        """Compute in the precision of the plan inside the block."""
        # Selective checkpointing needs the same operations in both passes of a block. The first pass would
        # find the weights that an earlier call of the block had cast; the second one would cast them.
        cache = self.config.activation_checkpointing != "selective"
        return autocast(self.plan.precision, self.ranks.device, cache=cache)

    def ema_weights(self) -> AbstractContextManager:
        """Use the EMA weights inside the block, if the job keeps an EMA."""
        return self.ema.average_parameters() if self.ema else nullcontext()

    def seed_own_model(self, step: int, micro_batch: int) -> None:
        """Seed torch's generator for a pass of a user's model, whose layers may be random (dropout).

        The numbers follow from the step, so that a resumed training draws the same ones.
        """
        if self.config.model.is_own:
            place = (self.config.seed, step, micro_batch, self.ranks.rank.rank)
            torch.manual_seed(int(np.random.SeedSequence(place).generate_state(1, np.uint64)[0]))

    def activity_of(self, step: int, task: int, default: Activity) -> Activity:
        """Return the activity of a pass: `compile` in the first turn of a task with a compiled model."""
        turns_of = self.task_schedule.turns_of
        compiles = self.config.compile != "off" and turns_of(task, step) == turns_of(task, self.start)
        return "compile" if compiles else default

    def save(
        self, step: int, loss: float | None, *, validation_nrmse: float | None = None, durable: bool
    ) -> None:
        """Start saving the state after `step` steps; when `durable`, return once it is on the disk."""
        origin = {"run_id": self.job.run_id, "code": self.job.code, "wandb": self.wandb_id}
        state = TrainerState(
            step=self.stage.run_step(step),
            **state_fields(self.stage),
            samples=step * self.task_schedule.samples,
            loss=loss,
            validation_nrmse=validation_nrmse,
            config=asdict(self.config),
            made_by={**origin, **describe_run(self.plan, device_name(self.ranks.device))},
            scaler=self.scaler.state_dict(),
        )
        self.checkpoints.save(state, self.tensors(), durable=durable)

    def tensors(self) -> dict[str, Tensor]:
        """Return all trained tensors by name."""
        reshard(self.operator)
        ema = self.ema.state_dict() if self.ema else None
        return tensors_of(self.operator, [self.optimizer], ema)

    def log_start(self) -> None:
        """Write the plan, and log how this start trains."""
        if not self.ranks.rank.is_first:
            return
        # The supervisor reads from it which micro-batch to restart with.
        write_json(self.ranks.rank.box / layout.PLAN, asdict(self.plan))
        sizes = {name: count_parameters(part) for name, part in self.operator.named_children()}
        parts = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
        frozen = f"; {count:,} frozen" if (count := count_frozen(self.operator)) else ""
        begin = f"resumes after step {self.stage.run_step(self.start)}" if self.start else "begins"
        if self.stage.is_one_of_several:
            print(f"stage: {self.stage}, {self.config.steps} steps", flush=True)
        print(
            f"training {begin}: {self.plan.world_size} ranks on {self.ranks.device.type}, {self.plan}, "
            f"{count_parameters(self.operator):,} parameters ({parts}{frozen}), {self.config.steps} steps, "
            f"{describe_loader(self.tasks, self.config)}",
            flush=True,
        )
        if self.config.deterministic:
            print(describe_guarantee(self.ranks.device), flush=True)
