"""Loading: provides the micro-batches of a rank on its device.

`data.keep` decides who reads: the loop from the device, a thread from memory, or processes from files.
The position is a function of the step: a resume is only a later step.
"""

from collections.abc import Sequence
from functools import partial

import torch

from vastrun.trainer.data import Task
from vastrun.trainer.job.config import LoaderConfig, TrainConfig
from vastrun.trainer.job.data_config import Keep
from vastrun.trainer.loading.loader import (
    InlineLoader,
    Loader,
    MultiTaskLoader,
    Prefetcher,
    make_transfer,
    use_device,
)
from vastrun.trainer.loading.workers import Workers
from vastrun.trainer.sampling.task_schedule import TaskSchedule
from vastrun.trainer.sampling.windows import SamplePlan

_DESCRIPTIONS: dict[Keep, str] = {
    "device": "data on the device",
    "host": "data in memory, read by a thread of each rank",
    "disk": "data in files, read by {} processes a rank, without /dev/shm",
}


def describe_loader(tasks: Sequence[Task], config: TrainConfig) -> str:
    """Describe how micro-batches are loaded, for the log."""
    ways = dict.fromkeys(_DESCRIPTIONS[task.train.keep].format(config.loader.workers) for task in tasks)
    return "; ".join(ways)


def make_loader(
    tasks: Sequence[Task], task_schedule: TaskSchedule, config: TrainConfig, device: torch.device
) -> Loader:
    """Make the loader of all tasks, which are already on their device."""
    loaders = [
        make_task_loader(
            task, sample_plan, config.loader, task_schedule.turns_of(number, config.steps), device
        )
        for number, (task, sample_plan) in enumerate(zip(tasks, task_schedule.sample_plans, strict=True))
    ]
    return (
        MultiTaskLoader(loaders, task_schedule) if len(loaders) > 1 or task_schedule.turns > 1 else loaders[0]
    )


def make_task_loader(
    task: Task, sample_plan: SamplePlan, config: LoaderConfig, steps: int, device: torch.device
) -> Loader:
    """Make the loader of one task for `steps` steps of its plan."""
    inline = InlineLoader(task, sample_plan)
    if task.train.keep == "device":
        return inline
    # Reading from memory or files takes longer than an index operation, and overlaps with the training.
    from_files = task.train.keep == "disk"
    return Prefetcher(
        Workers(task, sample_plan, config, steps) if from_files else inline,
        make_transfer(device, pin=config.pin, reused=from_files),
        depth=config.prefetch,
        accumulation=sample_plan.accumulation,
        steps=steps,
        begin=partial(use_device, device),
    )
