"""Models of a user's code, and boxes that have it."""

import shutil
from pathlib import Path
from typing import Any

from tests.trainer import sessions
from tests.trainer.conftest import Box
from vastrun.contract import layout
from vastrun.contract.records import read_as
from vastrun.trainer import user_code
from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.models.operator import Domain
from vastrun.trainer.models.own_model import OwnModel

EXAMPLES = Path(__file__).parents[3] / "examples" / "own_model"
TRANSFORMER: dict[str, Any] = {
    "name": "transformer:Transformer",
    "options": {"width": 16, "depth": 2, "heads": 2},
}
OTHERS = '''
import random

import numpy as np
import torch
from torch import nn


class Spectral(nn.Module):
    """A complex parameter, a frozen one, one that is never used, a buffer, numbers of other generators."""

    def __init__(self, *, grid, channels, conditions, width=8, dropout=0.0):
        super().__init__()
        self.lift = nn.Conv1d(channels + conditions, width, 1)
        self.layers = nn.ModuleList(Layer(width) for _ in range(2))
        self.drop = nn.Dropout(dropout)
        self.head = nn.Conv1d(width, channels, 1)
        self.unused = nn.Parameter(torch.full((3,), random.random()))
        self.frozen = nn.Parameter(torch.full((3,), np.random.rand()), requires_grad=False)
        self.register_buffer("ramp", torch.linspace(0, 1, grid[0]), persistent=False)

    def forward(self, fields, conditions):
        conditions = conditions[..., None].expand(-1, -1, fields.shape[-1])
        x = self.lift(torch.cat([fields, conditions], dim=1)) + self.ramp
        for layer in self.layers:
            x = self.drop(layer(x))
        return self.head(x) * self.frozen.mean()


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width, 4, dtype=torch.cfloat) / width)
        self.scale = nn.Linear(1, width)

    def forward(self, x):
        low = torch.fft.rfft(x.float())[..., :4]
        mixed = torch.einsum("bim,iom->bom", low, self.weight)
        scale = self.scale(x.mean(dim=(1, 2), keepdim=True)).transpose(1, 2)
        return x + scale * torch.fft.irfft(mixed, n=x.shape[-1])
'''
SPECTRAL: dict[str, Any] = {"name": "others:Spectral", "options": {"width": 8}}


def prepare(folder: Path) -> Path:
    """Return a box with data and the code of these models."""
    box = sessions.prepare(folder)
    shutil.copytree(EXAMPLES, box / layout.CODE)
    (box / layout.CODE / "others.py").write_text(OTHERS)
    return box


def own_model(code: Path, model: dict[str, Any]) -> OwnModel:
    """Return a model for a line of 32 points, as the small training has it."""
    user_code.add_to_path(code)
    config = read_as(TrainConfig, {"model": model}).model
    return OwnModel(config, [Domain(grid=(32,), conditions=2)])


def box_with(folder: Path, **train: Any) -> Box:
    return Box(prepare(folder), **train)
