"""Spectra: the amplitudes of a field's wavenumbers; on a square, of rings of them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

BANDS: dict[str, tuple[float, float]] = {"low": (0, 4), "mid": (4, 12), "high": (12, math.inf)}
"""Wavenumbers from the first to before the second; a wave that fits the domain once has 1."""


class Rings:
    """Ring k has the wavenumbers whose length is from k to before k + 1; on a line, k alone."""

    def __init__(self, grid: tuple[int, ...], device: torch.device) -> None:
        self._axes = tuple(range(2, 2 + len(grid)))
        self._points = math.prod(grid)
        self._ring = _lengths(grid).floor().long().flatten().to(device)
        self.count = int(self._ring.max()) + 1
        numbers = torch.arange(self.count, device=device)
        self._bands = [(numbers >= first) & (numbers < end) for first, end in BANDS.values()]

    def power(self, fields: Tensor) -> Tensor:
        """Fields (B, K, *X) to (B, K, R): of each ring, the sum of its squared amplitudes."""
        waves = torch.fft.rfftn(fields, dim=self._axes).abs().flatten(2) / self._points
        rings = waves.new_zeros(*waves.shape[:2], self.count)
        return rings.index_add_(2, self._ring, waves.square())

    def bands(self, power: Tensor) -> list[Tensor]:
        """Power (B, K, R) to the mean of each band's rings (B, K)."""
        return [power[:, :, band].mean(dim=2) for band in self._bands]


def _lengths(grid: tuple[int, ...]) -> Tensor:
    """Of the wavenumbers of a real field, as `rfftn` orders them: of the last axis, none below 0."""
    axes = [torch.fft.fftfreq(points, 1 / points) for points in grid[:-1]]
    axes.append(torch.fft.rfftfreq(grid[-1], 1 / grid[-1]))
    squares = [axis.double().square() for axis in torch.meshgrid(*axes, indexing="ij")]
    return torch.stack(squares).sum(0).sqrt()
