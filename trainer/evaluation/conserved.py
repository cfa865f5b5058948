"""Conserved densities: what of a task's fields is conserved, where that is not the fields themselves."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from vastrun.trainer.data.gas import GAMMA

Densities = Callable[[Tensor], Tensor]
"""Maps fields (B, K, *X) in physical units to as many conserved densities."""


def of_gas(fields: Tensor) -> Tensor:
    """Map density, pressure and velocities of a gas to the densities of mass, energy and momentum."""
    density, pressure, velocity = fields[:, :1], fields[:, 1:2], fields[:, 2:]
    energy = pressure / (GAMMA - 1) + 0.5 * density * velocity.square().sum(dim=1, keepdim=True)
    return torch.cat([density, energy, density * velocity], dim=1)


CONSERVED: dict[str, Densities] = {
    "compressible_1d": of_gas,
    "compressible_2d": of_gas,
    "compressible_3d": of_gas,
}
"""Densities by task; of all other tasks the fields themselves are compared."""
