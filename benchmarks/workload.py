"""The workload that every loop runs: the trainer's model and loss on the same data; what a loop tells.

All else is as one writes it by hand. A rank of `torchrun`. Rank 0 prints a line of JSON every few steps; on a
GPU, its memory's peak at the end.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import h5py
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.trainer import models
from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.distributed.group import device_of
from vastrun.trainer.job.config import TrainConfig, config_of
from vastrun.trainer.models.operator import Domain
from vastrun.trainer.stages.objective import UnrollLoss


@dataclass(frozen=True, kw_only=True)
class Waves:
    """Advection's data, loaded by hand: N trajectories of T frames and X points, in two conditions."""

    fields: Tensor
    """(N, T, X)"""
    conditions: Tensor
    """(N, 2)"""

    @classmethod
    def read(cls, folder: Path, config: TrainConfig, device: torch.device) -> Waves:
        """All files of `folder`."""
        fields, conditions = [], []
        for path in sorted(folder.glob("*.hdf5")):
            with h5py.File(path) as file:
                fields.append(torch.from_numpy(file["tensor"][: config.data[0].train]))
                condition = torch.tensor([float(file.attrs["beta"]), config.data[0].dt]).log10()
            conditions.append(condition.expand(len(fields[-1]), -1))
        return cls(fields=torch.cat(fields).to(device), conditions=torch.cat(conditions).to(device))

    def batches(self, config: TrainConfig, rank: int, world_size: int) -> Iterator[Windows]:
        """A rank's share of each step: windows and noise drawn at random, each turned around the circle."""
        total, frames, points = self.fields.shape
        batch, device = config.batch // world_size, self.fields.device
        torch.manual_seed(config.seed + rank)
        times = torch.arange(config.unroll + 1, device=device)
        places = torch.arange(points, device=device)
        level = torch.zeros(batch, device=device)
        for _ in range(config.steps):
            chosen = torch.randint(total, (batch, 1), device=device)
            first = torch.randint(frames - config.unroll, (batch, 1), device=device)
            shift = torch.randint(points, (batch, 1), device=device)
            windows = self.fields[chosen, first + times]
            turned = (places - shift).remainder(points)[:, None].expand_as(windows)
            yield Windows(
                fields=windows.gather(2, turned)[:, :, None],
                noise=config.noise * torch.randn(batch, 1, points, device=device),
                level=level,
                conditions=self.conditions[chosen[:, 0]],
            )


@dataclass(frozen=True, kw_only=True)
class Workload:
    """All that is not the loop."""

    config: TrainConfig
    box: Path
    device: torch.device
    rank: int
    world_size: int
    waves: Waves
    objective: UnrollLoss
    """The model and its loss, on the device."""

    @classmethod
    def of_environment(cls) -> Workload:
        """As torchrun's variables and VASTRUN_BOX say."""
        box = Path(os.environ["VASTRUN_BOX"])
        job = Job.read(box)
        config = config_of(job)
        torch.set_num_threads(config.threads)
        torch.manual_seed(config.seed)
        device = device_of(int(os.environ["LOCAL_RANK"]), gpus=job.gpus)
        waves = Waves.read(box / layout.DATA, config, device)
        operator = models.make(config.model, [Domain(grid=waves.fields.shape[2:], conditions=2)]).to(device)
        operator.scale(0).set(waves.fields.mean().expand(2, 1), waves.fields.std().expand(2, 1))
        return cls(
            config=config,
            box=box,
            device=device,
            rank=int(os.environ["RANK"]),
            world_size=int(os.environ["WORLD_SIZE"]),
            waves=waves,
            objective=UnrollLoss(operator),
        )

    def batches(self) -> Iterator[Windows]:
        """This rank's share of the batch of each step."""
        return self.waves.batches(self.config, self.rank, self.world_size)

    def optimizer(self, model: nn.Module) -> torch.optim.AdamW:
        """AdamW that decays matrices only."""
        config, parameters = self.config.optim, list(model.parameters())
        groups = [
            {"params": [p for p in parameters if p.ndim >= 2]},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(
            groups, lr=config.lr, betas=config.betas, weight_decay=config.weight_decay, fused=True
        )

    def schedule(self, optimizer: torch.optim.Optimizer) -> LambdaLR:
        """A linear warm-up, then a cosine down to a hundredth of the rate."""
        steps = self.config.steps
        warmup = max(1, round(self.config.optim.warmup * steps))

        def share(step: int) -> float:
            if step < warmup:
                return (step + 1) / warmup
            return 0.505 + 0.495 * math.cos(math.pi * (step - warmup) / (steps - warmup))

        return LambdaLR(optimizer, share)

    def report(self, done: int, loss: torch.Tensor) -> None:
        """So many steps are done; a line of it now and then, as one would print it."""
        if self.rank == 0 and (done == 1 or done % self.config.log_every == 0):
            print(json.dumps({"step": done, "loss": loss.item(), "at": time.time()}), flush=True)

    def saves_after(self, done: int) -> Path | None:
        """Where a checkpoint is due after so many steps, as the trainer saves one; None: it is not."""
        due = done % self.config.checkpoint_every == 0 or done == self.config.steps
        return self.box / "by-hand" / f"step-{done}" if due else None

    def end(self) -> NoReturn:
        """The last step is done."""
        if self.rank == 0 and self.device.type == "cuda":
            peak = torch.cuda.max_memory_allocated(self.device)
            print(json.dumps({"peak_memory_mib": peak / (1 << 20)}))
        sys.stdout.flush()
        os._exit(0)
