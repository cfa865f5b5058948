"""The course that every loop runs: the trainer's model, data and optimiser; what a loop says of its steps.

A rank of `torchrun`. Rank 0 prints a line of JSON every few steps, and its memory's peak at the end.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import torch
from torch import nn

from trainer import data, layout, models
from trainer.config import TrainConfig
from trainer.data import Task
from trainer.data.trajectories import Windows
from trainer.dist import device_of
from trainer.objective import UnrollLoss
from trainer.optim import adamw
from trainer.rank import read_job
from trainer.sampling.windows import picks
from trainer.schedule import Schedule
from trainer.session import domain_of, space_of


@dataclass(frozen=True, kw_only=True)
class Course:
    """All that is not the loop."""

    config: TrainConfig
    device: torch.device
    rank: int
    world_size: int
    task: Task
    objective: UnrollLoss
    """The model and its loss, on the device."""
    schedule: Schedule

    @classmethod
    def of_environment(cls) -> Course:
        """As torchrun's variables and VASTRUN_BOX say."""
        box = Path(os.environ["VASTRUN_BOX"])
        job = read_job(box)
        config = job.train
        assert config is not None
        torch.set_num_threads(config.threads)
        torch.manual_seed(config.seed)
        device = device_of(int(os.environ["LOCAL_RANK"]), gpus=job.gpus)
        task = data.make(config.data[0], box / layout.DATA)
        task.place(device)
        operator = models.make(config.model, [domain_of(task.train)])
        operator.to(device).scale(0).set(*task.train.moments())
        return cls(
            config=config,
            device=device,
            rank=int(os.environ["RANK"]),
            world_size=int(os.environ["WORLD_SIZE"]),
            task=task,
            objective=UnrollLoss(operator),
            schedule=Schedule(config.optim, config.steps),
        )

    def batches(self) -> Iterator[Windows]:
        """This rank's share of the batch of each step."""
        config, space = self.config, space_of(self.task.train, self.config.unroll)
        for step in range(config.steps):
            chosen = picks(config.seed, step, batch=config.batch, noise=config.noise, space=space)
            yield self.task.batch(step, chosen.share(self.rank, self.world_size))

    def optimizer(self, model: nn.Module) -> torch.optim.AdamW:
        return adamw(model, self.config.optim)

    def tell(self, done: int, loss: torch.Tensor) -> None:
        """So many steps are done; a line of it now and then, as one would print it."""
        if self.rank == 0 and (done == 1 or done % self.config.log_every == 0):
            print(json.dumps({"step": done, "loss": loss.item(), "at": time.time()}), flush=True)

    def end(self) -> NoReturn:
        """The last step is done."""
        if self.rank == 0:
            print(json.dumps({"peak_memory_mib": self._peak_mib()}))
        sys.stdout.flush()
        os._exit(0)

    def _peak_mib(self) -> float:
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) / (1 << 20)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
