"""Metrics: what is measured of a field that should be zero everywhere, its wavenumbers included."""

from __future__ import annotations

import math

import torch
from torch import Tensor

BANDS: dict[str, tuple[float, float]] = {"low": (0, 4), "mid": (4, 12), "high": (12, math.inf)}
"""Wavenumbers from the first to before the second; a wave that fits the domain once has 1."""

MEASURES = ("square", "edge", "mean", "highest", *BANDS)
"""Of each channel of a field: its mean square, that of the outermost points, its mean, its largest absolute
value, and the mean square amplitude of the rings of each band of wavenumbers."""


class WavenumberRings:
    """Ring k has the wavenumbers whose length is from k to before k + 1; on a line, k alone."""

    def __init__(self, grid: tuple[int, ...], device: torch.device) -> None:
        self._axes = tuple(range(2, 2 + len(grid)))
        self._points = math.prod(grid)
        wavenumbers = _wavenumbers(grid)
        lengths = wavenumbers.square().sum(dim=0).sqrt()
        self._ring = lengths.floor().long().flatten().to(device)
        self._share = _shares(wavenumbers, grid).flatten().to(device)
        self.count = int(self._ring.max()) + 1
        numbers = torch.arange(self.count, device=device)
        self._bands = [(numbers >= first) & (numbers < end) for first, end in BANDS.values()]

    def power(self, fields: Tensor) -> Tensor:
        """Return each ring's sum of squared amplitudes of fields (B, K, *X), each wave once: (B, K, R)."""
        waves = torch.fft.rfftn(fields, dim=self._axes).abs().flatten(2) / self._points
        rings = waves.new_zeros(*waves.shape[:2], self.count)
        return rings.index_add_(2, self._ring, waves.square() * self._share)

    def bands(self, power: Tensor) -> list[Tensor]:
        """Average power (B, K, R) over each band's rings: (B, K)."""
        return [power[:, :, band].mean(dim=2) for band in self._bands]


def _wavenumbers(grid: tuple[int, ...]) -> Tensor:
    """Return wavenumbers (N, *F) by axis, as `rfftn` orders those of a real field.

    Of the last none is below 0.
    """
    axes = [torch.fft.fftfreq(points, 1 / points, dtype=torch.float64) for points in grid[:-1]]
    axes.append(torch.fft.rfftfreq(grid[-1], 1 / grid[-1], dtype=torch.float64))
    return torch.stack(torch.meshgrid(*axes, indexing="ij"))


def _shares(wavenumbers: Tensor, grid: tuple[int, ...]) -> Tensor:
    """Return shares (*F): half, where the same wave, told the other way round, is there too."""
    points = torch.tensor(grid).reshape(-1, *(1,) * len(grid))
    its_own_opposite = (2 * wavenumbers) % points == 0
    twice = its_own_opposite[-1] & ~its_own_opposite.all(dim=0)
    return torch.where(twice, 0.5, 1.0)


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
