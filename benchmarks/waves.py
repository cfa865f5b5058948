"""The data as one loads them by hand: files into a tensor on the device, random windows out of that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py
import torch
from torch import Tensor

from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.job.config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class Waves:
    """What advection's files hold to train on; N trajectories of T frames and X points, in two conditions."""

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
