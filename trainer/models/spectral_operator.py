"""Spectral operator: a linear map of each mode of a field, and Fourier layers on a coarse grid for the rest.

Shapes: B samples, K channels of the field, X points by axis, G points of the coarse grid by axis, D channels
of a layer, C conditions, H features of the conditions, N axes.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from vastrun.trainer.job.config import ModelConfig
from vastrun.trainer.models.fno import FourierBlock, SpectralConv
from vastrun.trainer.models.modes import ModeMap, resampling
from vastrun.trainer.models.operator import Domain, NetworkOperator, grid_points


class SpectralOperator(NetworkOperator):
    """Spectral operator of one task.

    A time step moves and damps all modes of a field, and mixes few of them: the first is a linear map of each
    mode by the conditions, and the second is left to layers that see only the modes of a coarse grid, at
    fewer points.
    """

    coordinates: Tensor

    def __init__(self, config: ModelConfig, domains: Sequence[Domain]) -> None:
        super().__init__(domains)
        [domain] = domains
        grid, features = domain.grid, config.mlp_ratio * config.dim
        coarse = tuple(min(points, config.points) for points in grid)
        self.features = nn.Sequential(
            nn.Linear(domain.conditions, features), nn.SiLU(), nn.Linear(features, features), nn.SiLU()
        )
        self.linear = ModeMap(domain, features)
        self.down = resampling(grid, coarse, periodic=domain.periodic)
        self.up = resampling(coarse, grid, periodic=domain.periodic)
        self.register_buffer("coordinates", torch.empty(*coarse, len(grid)))
        self.lift = nn.Linear(domain.channels + len(grid), config.dim)
        self.modulation = nn.Linear(features, config.depth * 2 * config.dim)
        self.layers = nn.ModuleList(
            FourierBlock(config.dim, config.modes, coarse) for _ in range(config.depth)
        )
        self.hidden = nn.Linear(config.dim, config.mlp_ratio * config.dim)
        self.head = nn.Linear(config.mlp_ratio * config.dim, domain.channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set head and modulation to zero: the predicted change is zero at first."""
        self.coordinates.copy_(grid_points(tuple(self.coordinates.shape[:-1])))
        for layer in (self.head, self.modulation):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    @property
    def blocks(self) -> nn.ModuleList:
        """Fourier layers."""
        return self.layers

    @property
    def fp32_modules(self) -> list[nn.Module]:
        """Transforms and maps of modes: half precision would lose the small ones."""
        return [module for module in self.modules() if isinstance(module, SpectralConv | ModeMap)]

    def predict_change(self, fields: Tensor, conditions: Tensor, task: int) -> Tensor:
        """Map fields (B, K, *X) and conditions (B, C) to (B, K, *X)."""
        u, features = fields.movedim(1, -1), self.features(conditions)
        change = self.up(self._coarse_change(self.down(u), features))
        # A factor of -1 removes a mode, whatever the units of field and change are.
        scale = self.scale(task)
        ratio = (scale.std[0] / scale.std[1]).flatten()
        return (change + ratio * self.linear(u, features)).movedim(-1, 1)

    def _coarse_change(self, u: Tensor, features: Tensor) -> Tensor:
        """Map u (B, *G, K) and features (B, H) to (B, *G, K)."""
        where = self.coordinates.expand(len(u), *self.coordinates.shape)
        x = self.lift(torch.cat([u, where], dim=-1))
        modulation = self.modulation(features).reshape(len(u), *(1,) * (u.ndim - 2), -1)
        factors = modulation.chunk(2 * len(self.layers), dim=-1)
        for layer, scale, shift in zip(self.layers, factors[::2], factors[1::2], strict=True):
            x = layer(x * (1 + scale) + shift)
        change: Tensor = self.head(functional.gelu(self.hidden(x)))
        return change
