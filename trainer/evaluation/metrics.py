"""Metrics: what is measured of a field that should be zero everywhere."""

from __future__ import annotations

import torch
from torch import Tensor

from trainer.evaluation.spectra import BANDS, WavenumberRings

MEASURES = ("square", "edge", "mean", "highest", *BANDS)
"""Of each channel of a field: its mean square, that of the outermost points, its mean, its largest absolute
value, and the mean square amplitude of the rings of each band of wavenumbers."""


class FieldMetrics:
    """Measures fields on one grid."""

    def __init__(self, grid: tuple[int, ...], device: torch.device) -> None:
        self.rings = WavenumberRings(grid, device)
        self._edge = _edge_of(grid).to(device)

    def measure(self, error: Tensor) -> Tensor:
        """Measure fields (B, K, *X): (M, B, K), in float64.

        NaN for a band that the grid has no wavenumbers of.
        """
        error = error.double()
        points = error.flatten(2)
        square = points.square()
        bands = self.rings.bands(self.rings.power(error))
        whole = (square.mean(2), square[:, :, self._edge].mean(2), points.mean(2), points.abs().amax(2))
        return torch.stack([*whole, *bands])


def _edge_of(grid: tuple[int, ...]) -> Tensor:
    """Mark the points at the first or last place of an axis: (P,) bool."""
    edge = torch.zeros(grid, dtype=torch.bool)
    for axis in range(len(grid)):
        for place in (0, -1):
            edge.select(axis, place).fill_(True)
    return edge.flatten()
