"""Loading: the micro-batches of a rank, on its device when the loop asks for them.

Where the trajectories lie says who reads them: the loop from the device, a thread from memory, or processes
from files. The position is a function of the step: a resume is only a later step.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from vastrun.contract.config import Keep, LoaderConfig, TrainConfig
from vastrun.trainer.data import Task
from vastrun.trainer.loading.device_transfer import take_device, transfer_to
from vastrun.trainer.loading.loader import InlineLoader, Loader, Prefetcher, TaskByTask
from vastrun.trainer.loading.workers import Workers
from vastrun.trainer.sampling.task_schedule import TaskSchedule
from vastrun.trainer.sampling.windows import SamplePlan

_WAYS: dict[Keep, str] = {
    "device": "data on the device",
    "host": "data in memory, read by a thread of each rank",
    "disk": "data in files, read by {} processes a rank, without /dev/shm",
}


def describe_loader(tasks: Sequence[Task], config: TrainConfig) -> str:
    """Say how micro-batches come to the device."""
    ways = dict.fromkeys(_WAYS[task.train.keep].format(config.loader.workers) for task in tasks)
    return "; ".join(ways)


def make_loader(
    tasks: Sequence[Task], task_schedule: TaskSchedule, config: TrainConfig, device: torch.device
) -> Loader:
    """Make the loader for where the tasks, already placed, keep their trajectories."""
    loaders = [
        make_loader_of(task, sample_plan, config.loader, task_schedule.turns_of(number, config.steps), device)
        for number, (task, sample_plan) in enumerate(zip(tasks, task_schedule.sample_plans, strict=True))
    ]
    return TaskByTask(loaders, task_schedule) if len(loaders) > 1 or task_schedule.turns > 1 else loaders[0]


def make_loader_of(
    task: Task, sample_plan: SamplePlan, config: LoaderConfig, steps: int, device: torch.device
) -> Loader:
    """Make the loader of one task, for so many steps of its order."""
    inline = InlineLoader(task, sample_plan)
    if task.train.keep == "device":
        return inline
    # From here on reading takes longer than a look-up, and goes on beside the training.
    from_files = task.train.keep == "disk"
    return Prefetcher(
        Workers(task, sample_plan, config, steps) if from_files else inline,
        transfer_to(device, pin=config.pin, lent=from_files),
        depth=config.prefetch,
        accumulation=sample_plan.accumulation,
        steps=steps,
        begin=partial(take_device, device),
    )
