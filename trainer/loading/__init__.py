"""Loading: the micro-batches of a rank, on its device when the loop asks for them.

`data.keep` says where the trajectories lie, and so who reads them: the loop from the device, a thread from
memory, or processes from files. The position is a function of the step: a resume is only a later step.
"""

from __future__ import annotations

import torch

from trainer.config import TrainConfig
from trainer.data import Task
from trainer.loading.ahead import Ahead
from trainer.loading.delivery import deliver_to
from trainer.loading.loader import Direct, Loader
from trainer.loading.workers import Workers
from trainer.sampler import Order


def make_loader(task: Task, order: Order, config: TrainConfig, device: torch.device) -> Loader:
    """The loader for where the task, already placed, keeps its trajectories."""
    direct = Direct(task, order)
    if config.data.keep == "device":
        return direct
    source = Workers(task, order, config.loader, config.steps) if config.data.keep == "disk" else direct
    return Ahead(
        source,
        deliver_to(device, pin=config.loader.pin),
        depth=config.loader.prefetch,
        accumulation=order.accumulation,
        steps=config.steps,
    )
