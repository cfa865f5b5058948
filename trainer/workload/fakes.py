"""Fakes for an estimate: data, other ranks, checkpoints, and the kernels of a GPU.

Some operations save different tensors for the backward pass on a CPU than on a GPU.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as torch_dist
from torch import Tensor, nn
from torch.nn import functional
from torch.testing._internal.distributed.fake_pg import FakeStore

from vastrun.trainer import data
from vastrun.trainer.checkpoints import Checkpointer
from vastrun.trainer.data.problem import DataSizes
from vastrun.trainer.data.trajectories import Trajectories, TrajectoryTask, Windows
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.distributed.rank import Activity, Heartbeat, Rank
from vastrun.trainer.engine.session import Session
from vastrun.trainer.job.data_config import DataConfig, Keep
from vastrun.trainer.models.latent_operator import HeadNorm

WORKSPACE_BYTES = 66 << 20
"""Bytes of cuBLAS workspaces in torch's allocator on an H100: 32 MiB in the main thread, 32 MiB in that of
the backward pass, and small pieces. Measured between two steps, as memory that belongs to no tensor."""


@dataclass(frozen=True, kw_only=True)
class FakeRanks(Ranks):
    """Rank 0 of several; every other rank is assumed to send the same values."""

    def all_reduce_max(self, *values: float) -> list[float]:
        return list(values)

    def all_gather_objects(self, value: Any) -> list[Any]:
        return [value] * self.rank.world_size


def make_fake_ranks(world_size: int) -> Ranks:
    """Return rank 0 of `world_size` ranks; messages to the others are prepared, and not sent."""
    torch_dist.init_process_group("fake", rank=0, world_size=world_size, store=FakeStore())
    rank = Rank(rank=0, local_rank=0, world_size=world_size, box=Path("nowhere"))
    group = torch_dist.group.WORLD
    assert group is not None
    return FakeRanks(rank=rank, device=torch.device("cpu"), control=group)


class NullCheckpointer(Checkpointer):
    """Checkpointer that saves nothing."""

    def __init__(self) -> None: ...


class NullHeartbeat(Heartbeat):
    """Heartbeat that is not written: there is no supervisor."""

    def __init__(self) -> None: ...

    def beat(self, step: int, activity: Activity = "step") -> None: ...


class FakeTrajectories(Trajectories):
    """Trajectories without values, as many as the job asks for."""

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return zeros and ones: the values do not change the workload."""
        return torch.zeros(2, self.channels), torch.ones(2, self.channels)


def fake_task(config: DataConfig) -> TrajectoryTask:
    """Return a built-in task without values; `config.keep` has its effect. Raises DataError."""
    sizes = data.data_sizes(config)
    return TrajectoryTask(
        _trajectories(sizes, sizes.train, config.keep), _trajectories(sizes, sizes.test, "device")
    )


def fake_windows(session: Session, task: int, unroll: int | None = None) -> Windows:
    """Return a micro-batch of a task, without values. `unroll`: frames to predict; None: the job's."""
    size, space = session.plan.micro_batch, session.task_schedule.sample_plans[task].space
    return Windows(
        fields=torch.empty(size, (unroll or space.unroll) + 1, space.channels, *space.grid),
        noise=torch.empty(size, space.channels, *space.grid),
        level=torch.empty(size),
        conditions=torch.empty(size, session.operator.domains[task].conditions),
        task=task,
    )


def _trajectories(sizes: DataSizes, count: int, keep: Keep) -> FakeTrajectories:
    """Return trajectories; of those that stay in files only one is allocated, the others are views of it."""
    stored = count if keep == "device" else 1
    return FakeTrajectories(
        fields=torch.empty(stored, *sizes.frame_shape).expand(count, *sizes.frame_shape),
        conditions=torch.empty(count, sizes.conditions),
        symmetry=sizes.symmetry,
        static=sizes.static,
        steady=sizes.steady,
    )


class FusedRmsNorm(torch.autograd.Function):
    """RMSNorm like CUDA's fused kernel: it saves its input and one number per row, not the quotients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        """Map x (..., E) and a weight (E,) to a tensor shaped like x, with arbitrary values."""
        ctx.save_for_backward(x, weight, torch.empty(*x.shape[:-1], 1, device=x.device))
        return torch.mul(x, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of x and of the weight."""
        x, weight, _ = ctx.saved_tensors
        return torch.mul(gradients[0], x), torch.empty_like(weight)


def save_tensors_as_cuda(model: nn.Module) -> None:
    """Let a model's norms save the tensors that they save on a GPU. The results become meaningless."""
    for module in model.modules():
        if isinstance(module, HeadNorm):
            module.forward = partial(_head_norm, module)  # type: ignore[method-assign]
        elif isinstance(module, nn.LayerNorm):
            module.forward = partial(_layer_norm, module)


def _head_norm(module: HeadNorm, x: Tensor) -> Tensor:
    normed: Tensor = FusedRmsNorm.apply(x, module.weight.to(x.dtype))
    return normed


def _layer_norm(module: nn.LayerNorm, x: Tensor) -> Tensor:
    """Compute in fp32, as autocast does on CUDA and not on a CPU."""
    weight, bias = (None if p is None else p.float() for p in (module.weight, module.bias))
    return functional.layer_norm(x.float(), module.normalized_shape, weight, bias, module.eps)
