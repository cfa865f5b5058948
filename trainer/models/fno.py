"""Fourier neural operator (Li et al. 2021), the baseline: mixes the lowest frequencies of a field.

Shapes: B samples, K channels of the field, X points by axis, D channels, M frequencies by axis, C conditions,
N axes. Channels come last within the model.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from vastrun.trainer.job.config import ModelConfig
from vastrun.trainer.models.modes import field_of, low_modes
from vastrun.trainer.models.operator import Domain, NetworkOperator, grid_points


class FNO(NetworkOperator):
    """FNO for one task. Conditions and coordinates are additional input channels."""

    coordinates: Tensor

    def __init__(self, config: ModelConfig, domains: Sequence[Domain]) -> None:
        super().__init__(domains)
        [domain] = domains
        self.grid = grid = domain.grid
        self.register_buffer("coordinates", torch.empty(*grid, len(grid)))
        self.lift = nn.Linear(domain.channels + len(grid) + domain.conditions, config.dim)
        self.layers = nn.ModuleList(FourierBlock(config.dim, config.modes, grid) for _ in range(config.depth))
        self.hidden = nn.Linear(config.dim, config.mlp_ratio * config.dim)
        self.head = nn.Linear(config.mlp_ratio * config.dim, domain.channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the head to zero: the predicted change is zero at first."""
        self.coordinates.copy_(grid_points(self.grid))
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    @property
    def blocks(self) -> nn.ModuleList:
        """Fourier layers."""
        return self.layers

    @property
    def fp32_modules(self) -> list[nn.Module]:
        """Spectral convolutions: there are no complex numbers of half precision."""
        return [module for module in self.modules() if isinstance(module, SpectralConv)]

    def predict_change(self, fields: Tensor, conditions: Tensor, task: int) -> Tensor:  # noqa: ARG002 - there is one
        """Map fields (B, K, *X) and conditions (B, C) to (B, K, *X)."""
        where = self.coordinates.expand(len(fields), *self.coordinates.shape)
        what = conditions.reshape(len(fields), *(1,) * len(self.grid), -1).expand(-1, *self.grid, -1)
        x = self.lift(torch.cat([fields.movedim(1, -1), where, what], dim=-1))
        for layer in self.layers:
            x = layer(x)
        change: Tensor = self.head(functional.gelu(self.hidden(x)))
        return change.movedim(-1, 1)


class FourierBlock(nn.Module):
    """Residual block: a spectral convolution plus a pointwise linear map."""

    def __init__(self, dim: int, modes: int, grid: tuple[int, ...]) -> None:
        super().__init__()
        self.spectral = SpectralConv(dim, modes, grid)
        self.pointwise = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, *X, D) to (B, *X, D)."""
        return x + functional.gelu(self.spectral(x) + self.pointwise(x))


class SpectralConv(nn.Module):
    """Convolution over the whole periodic domain by the lowest frequencies, always in fp32.

    The weight is real, (*M, D, D, 2) with real and imaginary part last, so that it is sharded, sent and
    updated like any other weight.
    """

    def __init__(self, dim: int, modes: int, grid: tuple[int, ...]) -> None:
        super().__init__()
        self.grid = grid
        self.modes = modes
        self.weight = nn.Parameter(torch.empty(*(2 * modes for _ in grid[1:]), modes, dim, dim, 2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw small weights: the pointwise map dominates at first."""
        nn.init.normal_(self.weight, std=1 / self.weight.shape[-2])

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, *X, D) to (B, *X, D)."""
        # Autocast does not cast complex tensors.
        low = low_modes(x, self.modes)
        mixed = torch.einsum("b...i,...io->b...o", low, torch.view_as_complex(self.weight))
        return field_of(mixed, self.grid)
