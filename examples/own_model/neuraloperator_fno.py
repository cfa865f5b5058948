"""The FNO of the package `neuraloperator` as the model of the onboard trainer."""

from __future__ import annotations

import torch
from neuralop.models import FNO
from torch import Tensor, nn


class Net(nn.Module):
    """FNO that gets the conditions as further channels; the package adds the coordinates itself."""

    def __init__(
        self,
        *,
        grid: tuple[int, ...],
        channels: int,
        conditions: int,
        modes: int = 12,
        width: int = 64,
        depth: int = 4,
    ) -> None:
        """`grid`, `channels` and `conditions` come from the data, the others from `model.options`."""
        super().__init__()
        self.fno = FNO(
            # The package counts frequencies of both signs.
            n_modes=(2 * modes,) * len(grid),
            in_channels=channels + conditions,
            out_channels=channels,
            hidden_channels=width,
            n_layers=depth,
        )

    def forward(self, fields: Tensor, conditions: Tensor) -> Tensor:
        """Map fields (B, channels, *grid) and conditions (B, conditions) to a change (B, channels, *grid)."""
        shape = (*conditions.shape, *fields.shape[2:])
        spread = conditions.reshape(*conditions.shape, *(1,) * (fields.ndim - 2)).expand(shape)
        return self.fno(torch.cat([fields, spread], dim=1))
