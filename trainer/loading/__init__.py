"""Loading: the micro-batches of a rank, on its device when the loop asks for them.

Where the trajectories lie says who reads them: the loop from the device, a thread from memory, or processes
from files. The position is a function of the step: a resume is only a later step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trainer.contract.config import Keep, LoaderConfig, TrainConfig
from trainer.data import Task
from trainer.loading.ahead import Ahead
from trainer.loading.delivery import deliver_to
from trainer.loading.loader import Direct, Loader
from trainer.loading.tasks import TaskByTask
from trainer.loading.workers import Workers
from trainer.sampling.rota import Rota
from trainer.sampling.windows import Order

_WAYS: dict[Keep, str] = {
    "device": "data on the device",
    "host": "data in memory, read by a thread of each rank",
    "disk": "data in files, read by {} processes a rank, without /dev/shm",
}


def way_of(tasks: Sequence[Task], config: TrainConfig) -> str:
    """How micro-batches come to the device, in words."""
    ways = dict.fromkeys(_WAYS[task.train.keep].format(config.loader.workers) for task in tasks)
    return "; ".join(ways)


def make_loader(tasks: Sequence[Task], rota: Rota, config: TrainConfig, device: torch.device) -> Loader:
    """The loader for where the tasks, already placed, keep their trajectories."""
    loaders = [
        make_loader_of(task, order, config.loader, rota.turns_of(number, config.steps), device)
        for number, (task, order) in enumerate(zip(tasks, rota.orders, strict=True))
    ]
    return TaskByTask(loaders, rota) if len(loaders) > 1 or rota.turns > 1 else loaders[0]


def make_loader_of(
    task: Task, order: Order, config: LoaderConfig, steps: int, device: torch.device
) -> Loader:
    """The loader of one task, for so many steps of its order."""
    direct = Direct(task, order)
    if task.train.keep == "device":
        return direct
    from_files = task.train.keep == "disk"
    return Ahead(
        Workers(task, order, config, steps) if from_files else direct,
        deliver_to(device, pin=config.pin, lent=from_files),
        depth=config.prefetch,
        accumulation=order.accumulation,
        steps=steps,
    )
