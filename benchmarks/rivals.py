"""Rivals: the models that `equal_time` compares, the space in which each is tuned, and a U-Net.

Shapes: B samples, K channels of the field, X points by axis, C conditions.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from vastrun.trainer import models
from vastrun.trainer.data import Source
from vastrun.trainer.engine.session_builder import domain_of
from vastrun.trainer.job.config import ModelConfig, OptimConfig
from vastrun.trainer.models.operator import NetworkOperator

Value = int | float | str
_ANY_OPTIMISER: tuple[Value, ...] = ("adamw 0.002", "adamw 0.006", "muon 0.005", "muon 0.015")
_ADAMW: tuple[Value, ...] = ("adamw 0.001", "adamw 0.002", "adamw 0.004", "adamw 0.008")
"""For models without hidden matrices, which Muon is for."""
_BATCHES: tuple[Value, ...] = (8, 16, 32)

SPACES: Mapping[str, Mapping[str, tuple[Value, ...]]] = {
    "latent": {
        "optimiser": _ANY_OPTIMISER,
        "batch": _BATCHES,
        "dim": (64, 96),
        "depth": (1, 2, 4),
        "tokens": (8, 16),
        "fourier_dim": (0, 16, 24),
        "modes": (12, 24),
    },
    "spectral": {
        "optimiser": _ANY_OPTIMISER,
        "batch": _BATCHES,
        "dim": (16, 24, 32),
        "depth": (3, 4),
        "modes": (8, 12, 16),
        "points": (32, 64),
    },
    "fno": {
        "optimiser": _ANY_OPTIMISER,
        "batch": _BATCHES,
        "dim": (16, 24, 32, 48),
        "depth": (3, 4),
        "modes": (8, 16, 24),
    },
    "neuraloperator": {
        "optimiser": _ADAMW,
        "batch": _BATCHES,
        "dim": (16, 24, 32, 48),
        "depth": (3, 4),
        "modes": (8, 16, 24),
    },
    "unet": {
        "optimiser": _ADAMW,
        "batch": _BATCHES,
        "dim": (8, 16, 32),
        "depth": (3, 4),
    },
}
"""Values that are tried, by model and key. `tokens` are those of a line; a square has half along each."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A model and how it is trained."""

    model: str
    optimiser: str
    batch: int
    dim: int
    depth: int
    modes: int = 0
    tokens: int = 0
    fourier_dim: int = 0
    points: int = 0

    def __str__(self) -> str:
        hidden = {"model", *(() if self.fourier_dim or self.model != "latent" else ("modes",))}
        shown = {key: value for key, value in asdict(self).items() if value and key not in hidden}
        return ", ".join(
            str(value) if key == "optimiser" else f"{key} {value}" for key, value in shown.items()
        )

    @property
    def optim(self) -> OptimConfig:
        """Options of the optimiser."""
        name, rate = self.optimiser.split()
        return OptimConfig(name=name, lr=float(rate))  # type: ignore[arg-type]

    def build(self, train: Source) -> NetworkOperator:
        """Build the model for the task of a training set."""
        domain = domain_of(train)
        common = {"dim": self.dim, "depth": self.depth}
        if self.model == "latent":
            fourier = {"fourier_dim": self.fourier_dim, "modes": self.modes} if self.fourier_dim else {}
            config = ModelConfig(**common, **fourier, patch=self._patch(domain.grid))
        elif self.model == "spectral":
            config = ModelConfig(**common, name="spectral", modes=self.modes, points=self.points)
        elif self.model == "fno":
            config = ModelConfig(**common, name="fno", modes=self.modes)
        elif self.model == "neuraloperator":
            config = ModelConfig(
                name="benchmarks.rivals:Neuraloperator", options={**common, "modes": self.modes}
            )
        else:
            config = ModelConfig(
                name="benchmarks.rivals:UNet", options={**common, "periodic": train.symmetry == "shift"}
            )
        operator = models.make(config, [domain])
        operator.scale(0).set(*train.moments())
        return operator

    def _patch(self, grid: Sequence[int]) -> int:
        along = self.tokens if len(grid) == 1 else self.tokens // 2
        return grid[0] // along


def candidates(model: str, count: int) -> list[Candidate]:
    """Return different candidates of a model, drawn from its space: always the same ones."""
    space = SPACES[model]
    stream, found = random.Random(f"equal time {model}"), []
    while len(found) < count:
        drawn: dict[str, Any] = {key: stream.choice(values) for key, values in space.items()}
        candidate = Candidate(model=model, **drawn)
        if candidate not in found:
            found.append(candidate)
    return found


class Neuraloperator(nn.Module):
    """FNO of the package `neuraloperator`, which adds the coordinates itself; conditions are channels."""

    def __init__(
        self, *, grid: tuple[int, ...], channels: int, conditions: int, modes: int, dim: int, depth: int
    ) -> None:
        super().__init__()
        from neuralop.models import FNO

        self.fno = FNO(
            # The package counts frequencies of both signs.
            n_modes=(2 * modes,) * len(grid),
            in_channels=channels + conditions,
            out_channels=channels,
            hidden_channels=dim,
            n_layers=depth,
        )

    def forward(self, fields: Tensor, conditions: Tensor) -> Tensor:
        """Map fields (B, K, *X) and conditions (B, C) to a change (B, K, *X)."""
        change: Tensor = self.fno(_with_conditions(fields, conditions))
        return change


class UNet(nn.Module):
    """U-Net (Ronneberger et al. 2015) of residual blocks with GELU; conditions are further channels."""

    def __init__(
        self,
        *,
        grid: tuple[int, ...],
        channels: int,
        conditions: int,
        dim: int,
        depth: int,
        periodic: bool,
    ) -> None:
        """`dim`: channels at full resolution, twice as many at each of the `depth` coarser ones."""
        super().__init__()
        widths = [dim * 2**level for level in range(depth + 1)]
        self.axes = len(grid)

        def block(inputs: int, outputs: int) -> nn.Module:
            return ConvBlock(self.axes, inputs, outputs, periodic=periodic)

        self.first = block(channels + conditions, dim)
        self.down = nn.ModuleList(block(fine, coarse) for fine, coarse in pairwise(widths))
        self.up = nn.ModuleList(block(fine + coarse, fine) for fine, coarse in pairwise(widths))
        self.head = _conv(self.axes, dim, channels, 1)
        # Like the others, it predicts no change at first.
        for parameter in self.head.parameters():
            nn.init.zeros_(parameter)

    def forward(self, fields: Tensor, conditions: Tensor) -> Tensor:
        """Map fields (B, K, *X) and conditions (B, C) to a change (B, K, *X)."""
        x = self.first(_with_conditions(fields, conditions))
        skipped = []
        for down in self.down:
            skipped.append(x)
            x = down(_POOLS[self.axes](x, 2))
        for up, skip in zip(reversed(self.up), reversed(skipped), strict=True):
            x = up(torch.cat([skip, functional.interpolate(x, scale_factor=2.0)], dim=1))
        change: Tensor = self.head(x)
        return change


class ConvBlock(nn.Module):
    """Residual block of two convolutions over three points, without norms, which would hide amplitudes."""

    def __init__(self, axes: int, inputs: int, outputs: int, *, periodic: bool) -> None:
        super().__init__()
        padding = "circular" if periodic else "zeros"
        self.first = _conv(axes, inputs, outputs, 3, padding=padding)
        self.second = _conv(axes, outputs, outputs, 3, padding=padding)
        self.shortcut = _conv(axes, inputs, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, inputs, *X) to (B, outputs, *X)."""
        inner = self.second(functional.gelu(self.first(x)))
        return functional.gelu(inner + self.shortcut(x))


_POOLS = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}


def _conv(axes: int, inputs: int, outputs: int, size: int, *, padding: str = "zeros") -> nn.Module:
    kinds: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
    conv: nn.Module = kinds[axes](inputs, outputs, size, padding=size // 2, padding_mode=padding)
    return conv


def _with_conditions(fields: Tensor, conditions: Tensor) -> Tensor:
    """Return fields with the conditions as further channels: (B, K + C, *X)."""
    spread = conditions.reshape(*conditions.shape, *(1,) * (fields.ndim - 2))
    return torch.cat([fields, spread.expand(*conditions.shape, *fields.shape[2:])], dim=1)
