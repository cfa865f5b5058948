"""The loop one would write by hand, for each strategy: nothing but the steps."""

from __future__ import annotations

from collections.abc import Callable

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from benchmarks.course import Course
from trainer.objective import UnrollLoss
from trainer.optim import set_learning_rate


def main() -> None:
    course = Course.of_environment()
    config = course.config
    if config.strategy != "single":
        dist.init_process_group("nccl" if course.device.type == "cuda" else "gloo")
    model = WRAP[config.strategy](course.objective)
    optimizer = course.optimizer(model)
    for step, windows in enumerate(course.batches()):
        loss = model(windows)
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(model.parameters(), config.optim.clip)
        set_learning_rate(optimizer, course.schedule.rate(step))
        optimizer.step()
        course.tell(step + 1, loss)
    if config.strategy != "single":
        dist.barrier()
    course.end()


def _replicated(objective: UnrollLoss) -> nn.Module:
    return DistributedDataParallel(objective, gradient_as_bucket_view=True, forward_sync_buffers=False)


def _sharded(objective: UnrollLoss) -> nn.Module:
    device = next(objective.parameters()).device
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for block in objective.operator.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(objective.operator, mesh=mesh)
    return objective


WRAP: dict[str, Callable[[UnrollLoss], nn.Module]] = {
    "single": lambda objective: objective,
    "ddp": _replicated,
    "fsdp2": _sharded,
}

if __name__ == "__main__":
    main()
