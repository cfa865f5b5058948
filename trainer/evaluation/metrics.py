"""Metrics: measures of an error field, in space and by wavenumber."""

import math

import torch
from torch import Tensor

BANDS: dict[str, tuple[float, float]] = {"low": (0, 4), "mid": (4, 12), "high": (12, math.inf)}
"""Bands of wavenumbers, lower bound inclusive; a wave that fits the domain once has wavenumber 1."""

MEASURES = ("square", "edge", "mean", "highest", *BANDS)
"""Measures per channel: mean square, mean square of the boundary points, mean, largest absolute value, and
the mean square amplitude of each band's rings."""


class WavenumberRings:
    """Rings of wavenumbers: ring k holds those with a length from k to below k + 1; in 1-D just k."""

    def __init__(self, grid: tuple[int, ...], device: torch.device) -> None:
        self._axes = tuple(range(2, 2 + len(grid)))
        self._points = math.prod(grid)
        # By axis, in the order of `rfftn`: the last axis has no negative ones.
        axes = [torch.fft.fftfreq(points, 1 / points, dtype=torch.float64) for points in grid[:-1]]
        axes.append(torch.fft.rfftfreq(grid[-1], 1 / grid[-1], dtype=torch.float64))
        wavenumbers = torch.stack(torch.meshgrid(*axes, indexing="ij"))
        lengths = wavenumbers.square().sum(dim=0).sqrt()
        self._ring = lengths.floor().long().flatten().to(device)
        self._share = _weights(wavenumbers, grid).flatten().to(device)
        self.count = int(self._ring.max()) + 1
        numbers = torch.arange(self.count, device=device)
        self._bands = [(numbers >= first) & (numbers < end) for first, end in BANDS.values()]

    def power(self, fields: Tensor) -> Tensor:
        """Return the sum of squared amplitudes in each ring, each wave once: (B, K, *X) to (B, K, R)."""
        waves = torch.fft.rfftn(fields, dim=self._axes).abs().flatten(2) / self._points
        rings = waves.new_zeros(*waves.shape[:2], self.count)
        return rings.index_add_(2, self._ring, waves.square() * self._share)

    def bands(self, power: Tensor) -> list[Tensor]:
        """Average power (B, K, R) over each band's rings: (B, K)."""
        return [power[:, :, band].mean(dim=2) for band in self._bands]


def _weights(wavenumbers: Tensor, grid: tuple[int, ...]) -> Tensor:
    """Return weights (*F): one half where the conjugate of a wave is in the spectrum, too."""
    points = torch.tensor(grid).reshape(-1, *(1,) * len(grid))
    is_self_conjugate = (2 * wavenumbers) % points == 0
    twice = is_self_conjugate[-1] & ~is_self_conjugate.all(dim=0)
    return torch.where(twice, 0.5, 1.0)


class FieldMetrics:
    """Measures error fields on one grid."""

    def __init__(self, grid: tuple[int, ...], device: torch.device) -> None:
        self.rings = WavenumberRings(grid, device)
        edge = torch.zeros(grid, dtype=torch.bool)
        for axis in range(len(grid)):
            for place in (0, -1):
                edge.select(axis, place).fill_(True)
        self._edge = edge.flatten().to(device)

    def measure(self, error: Tensor) -> Tensor:
        """Measure fields (B, K, *X): (M, B, K), in float64.

        A band without wavenumbers on this grid is NaN.
        """
        error = error.double()
        points = error.flatten(2)
        square = points.square()
        bands = self.rings.bands(self.rings.power(error))
        whole = (square.mean(2), square[:, :, self._edge].mean(2), points.mean(2), points.abs().amax(2))
        return torch.stack([*whole, *bands])
