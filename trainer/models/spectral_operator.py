"""Spectral operator: a linear map of each mode of a field, and Fourier layers on a coarse grid for the rest.

Shapes: B samples, K channels of the field, X points by axis, G points of the coarse grid by axis, D channels
of a layer, C conditions, H features of the conditions, N axes.
"""

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from vastrun.trainer.job.config import ModelConfig
from vastrun.trainer.models.fno import FourierBlock, SpectralConv
from vastrun.trainer.models.linear_map import ModeMap
from vastrun.trainer.models.modes import resampling
from vastrun.trainer.models.operator import Domain, NetworkOperator, grid_points

_MARGIN = 0.5
"""Share of the range of the training set by which a prediction may leave it."""


class SpectralOperator(NetworkOperator):
    """Spectral operator of one task.

    A time step moves and damps all modes of a field, and mixes few of them: the first is a linear map of each
    mode by the conditions, and the second is left to layers that see only the modes of a coarse grid, at
    fewer points.
    """

    coordinates: Tensor
    lowest: Tensor
    highest: Tensor

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
        self.register_buffer("lowest", torch.empty(domain.channels, *(1,) * len(grid)))
        self.register_buffer("highest", torch.empty(domain.channels, *(1,) * len(grid)))
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
        self.lowest.fill_(-torch.inf)
        self.highest.fill_(torch.inf)
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

    @torch.no_grad()
    def fit(self, parameters: Tensor, groups: Iterable[Iterable[Tensor]]) -> None:
        """Fit the linear part to trajectories (B, T, K, *X) at each of the parameters (G, C).

        It also notes the range of the values, in physical units, which no rollout leaves by much.
        """
        scale, channels = self.scale(0), len(self.lowest)
        mean, std = scale.mean[0].double(), scale.std[0].double()
        lowest, highest = mean.clone(), mean.clone()

        def normalised(batches: Iterable[Tensor]) -> Iterator[Tensor]:
            for fields in batches:
                values = fields.movedim(2, 0).reshape(channels, -1)
                lowest.copy_(torch.minimum(lowest, values.amin(dim=1).view_as(lowest)))
                highest.copy_(torch.maximum(highest, values.amax(dim=1).view_as(highest)))
                yield (fields.double() - mean) / std

        self.linear.fit(parameters, map(normalised, groups))
        self.lowest.copy_(lowest - _MARGIN * (highest - lowest))
        self.highest.copy_(highest + _MARGIN * (highest - lowest))

    def forward(self, u: Tensor, conditions: Tensor, task: int = 0) -> Tensor:
        """Predict the next field, within the range of the training set or that of `u`, whichever is wider.

        So no rollout diverges, however long it is.
        """
        target = super().forward(u, conditions, task)
        if self.scale(task).steady:
            return target
        axes = tuple(range(2, u.ndim))
        lowest, highest = u.amin(dim=axes, keepdim=True), u.amax(dim=axes, keepdim=True)
        return target.clamp(torch.minimum(lowest, self.lowest), torch.maximum(highest, self.highest))

    def predict_change(self, fields: Tensor, conditions: Tensor, task: int) -> Tensor:
        """Map fields (B, K, *X) and conditions (B, C) to (B, K, *X)."""
        u, features = fields.movedim(1, -1), self.features(conditions)
        change = self.linear.correction(self.up(self._coarse_change(self.down(u), features)))
        # A factor of -1 removes a mode, whatever the units of field and change are.
        scale = self.scale(task)
        ratio = (scale.std[0] / scale.std[1]).flatten()
        return (change + ratio * self.linear(u, features, conditions)).movedim(-1, 1)

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
