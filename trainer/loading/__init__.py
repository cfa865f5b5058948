"""Loading: the micro-batches of a rank, on its device when the loop asks for them.

Where the trajectories lie says who reads them: the loop from the device, a thread from memory, or processes
from files. The position is a function of the step: a resume is only a later step.
"""

from __future__ import annotations

import torch

from trainer.config import Keep, TrainConfig
from trainer.data import Task
from trainer.loading.ahead import Ahead
from trainer.loading.delivery import deliver_to
from trainer.loading.loader import Direct, Loader
from trainer.loading.workers import Workers
from trainer.sampling.windows import Order

_WAYS: dict[Keep, str] = {
    "device": "data on the device",
    "host": "data in memory, read by a thread of each rank",
    "disk": "data in files, read by {} processes a rank, without /dev/shm",
}


def way_of(task: Task, config: TrainConfig) -> str:
    """How micro-batches come to the device, in words."""
    return _WAYS[task.train.keep].format(config.loader.workers)


def make_loader(task: Task, order: Order, config: TrainConfig, device: torch.device) -> Loader:
    """The loader for where the task, already placed, keeps its trajectories."""
    direct = Direct(task, order)
    if task.train.keep == "device":
        return direct
    loader, from_files = config.loader, task.train.keep == "disk"
    return Ahead(
        Workers(task, order, loader, config.steps) if from_files else direct,
        deliver_to(device, pin=loader.pin, lent=from_files),
        depth=loader.prefetch,
        accumulation=order.accumulation,
        steps=config.steps,
    )
