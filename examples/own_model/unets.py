"""U-Nets as models of the onboard trainer, with three kinds of blocks.

`unets:UNet` has residual blocks with norms, `unets:CNextUNet` those of ConvNeXt, `unets:WarpUNet` heads that
fetch features from elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

_CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_UP = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
Block = Callable[[int, tuple[int, ...], bool], nn.Module]
"""Makes a block of a width, for a grid that is periodic or has walls."""


class ResidualBlock(nn.Module):
    """Two convolutions over three points, each after a norm (Gupta and Brandstetter 2022)."""

    def __init__(self, width: int, grid: tuple[int, ...], periodic: bool) -> None:
        super().__init__()
        conv = _CONV[len(grid)]
        mode = "circular" if periodic else "zeros"
        self.norms = nn.ModuleList(nn.GroupNorm(1, width) for _ in range(2))
        self.convs = nn.ModuleList(conv(width, width, 3, padding=1, padding_mode=mode) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        inner = x
        for norm, conv in zip(self.norms, self.convs, strict=True):
            inner = conv(functional.gelu(norm(inner)))
        return x + inner


class ConvNextBlock(nn.Module):
    """A convolution over seven points of each channel alone, then two layers at each point (Liu et al.)."""

    def __init__(self, width: int, grid: tuple[int, ...], periodic: bool) -> None:
        super().__init__()
        mode = "circular" if periodic else "zeros"
        self.conv = _CONV[len(grid)](width, width, 7, padding=3, padding_mode=mode, groups=width)
        self.norm = nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm(self.conv(x).movedim(1, -1))
        return x + self.narrow(functional.gelu(self.wide(inner))).movedim(-1, 1)


class WarpBlock(nn.Module):
    """Each head fetches its channels from a point that the features here point to, as Flower does (2026)."""

    def __init__(self, width: int, grid: tuple[int, ...], periodic: bool) -> None:
        super().__init__()
        conv = _CONV[len(grid)]
        self.heads, self.periodic = width // _CHANNELS_OF_HEAD, periodic
        self.shift = nn.Sequential(conv(width, width, 1), nn.GELU(), conv(width, self.heads * len(grid), 1))
        self.value, self.here = conv(width, width, 1), conv(width, width, 1)
        self.norm = nn.GroupNorm(self.heads, width)

    def forward(self, x: Tensor) -> Tensor:
        shift = self.shift(x).unflatten(1, (self.heads, -1)).flatten(0, 1)
        values = self.value(x).unflatten(1, (self.heads, -1)).flatten(0, 1)
        moved = warp(values, shift, self.periodic).unflatten(0, (-1, self.heads)).flatten(1, 2)
        return functional.gelu(self.norm(moved + self.here(x)))


_CHANNELS_OF_HEAD = 4
"""As in Flower."""


def warp(values: Tensor, shift: Tensor, periodic: bool) -> Tensor:
    """Return values (B, C, *X) at the points that lie `shift` (B, N, *X) away, in lengths of the domain."""
    if values.ndim == 3:  # torch samples squares and cubes only
        still = torch.zeros_like(shift)
        flat = warp(values[:, :, None], torch.cat([still, shift], dim=1)[:, :, None], periodic)
        return flat[:, :, 0]
    grid = values.shape[2:]
    axes = [torch.arange(points, dtype=shift.dtype, device=shift.device) for points in grid]
    points = torch.tensor(grid, dtype=shift.dtype, device=shift.device).reshape(-1, *(1,) * len(grid))
    where = torch.stack(torch.meshgrid(*axes, indexing="ij")) + shift * points
    if periodic:
        where = where.remainder(points)
        values, last = functional.pad(values, (0, 1) * len(grid), mode="circular"), points
    else:
        last = (points - 1).clamp_min(1)
    places = (2 * where / last - 1).movedim(1, -1).flip(-1)
    return functional.grid_sample(values, places, padding_mode="border", align_corners=True)


class UNet(nn.Module):
    """Predicts the change of a field on ever coarser grids and back (Ronneberger et al. 2015)."""

    block: Block = ResidualBlock

    def __init__(
        self,
        *,
        grid: tuple[int, ...],
        channels: int,
        conditions: int,
        width: int = 16,
        depth: int = 3,
        periodic: bool = True,
    ) -> None:
        """`width`: channels of the finest grid; twice as many on each of the `depth` coarser ones."""
        super().__init__()
        if any(points % 2**depth for points in grid):
            raise ValueError(f"depth: expected at most so many halvings as the grid {grid} has, got {depth}")
        grids = [tuple(points // 2**level for points in grid) for level in range(depth + 1)]
        widths = [width * 2**level for level in range(depth + 1)]
        conv, up, make = _CONV[len(grid)], _UP[len(grid)], type(self).block
        self.periodic = periodic
        self.lift = conv(channels + conditions + (0 if periodic else len(grid)), width, 1)
        self.down = nn.ModuleList(make(*of, periodic) for of in zip(widths[:-1], grids[:-1], strict=True))
        self.coarser = nn.ModuleList(conv(*pair, 2, stride=2) for pair in pairwise(widths))
        self.middle = make(widths[-1], grids[-1], periodic)
        self.finer = nn.ModuleList(up(coarse, fine, 2, stride=2) for fine, coarse in pairwise(widths))
        self.join = nn.ModuleList(conv(2 * fine, fine, 1) for fine in widths[:-1])
        self.up = nn.ModuleList(make(*of, periodic) for of in zip(widths[:-1], grids[:-1], strict=True))
        self.head = conv(width, channels, 1)
        # An untrained model predicts no change.
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, fields: Tensor, conditions: Tensor) -> Tensor:
        """Map fields (B, channels, *grid) and conditions (B, conditions) to a change (B, channels, *grid)."""
        x = self.lift(self._with_conditions(fields, conditions))
        skipped = []
        for block, coarser in zip(self.down, self.coarser, strict=True):
            skipped.append(block(x))
            x = coarser(skipped[-1])
        x = self.middle(x)
        for level in reversed(range(len(skipped))):
            x = self.join[level](torch.cat([self.finer[level](x), skipped[level]], dim=1))
            x = self.up[level](x)
        return self.head(x)

    def _with_conditions(self, fields: Tensor, conditions: Tensor) -> Tensor:
        """Append the conditions, and between walls the coordinates, as further channels."""
        grid = fields.shape[2:]
        spread = conditions.reshape(*conditions.shape, *(1,) * len(grid)).expand(*conditions.shape, *grid)
        parts = [fields, spread]
        if not self.periodic:
            axes = [torch.linspace(-1, 1, points).to(fields) for points in grid]
            where = torch.stack(torch.meshgrid(*axes, indexing="ij"))
            parts.append(where.expand(len(fields), *where.shape))
        return torch.cat(parts, dim=1)


class CNextUNet(UNet):
    """U-Net of ConvNeXt blocks."""

    block = ConvNextBlock


class WarpUNet(UNet):
    """U-Net of warping blocks."""

    block = WarpBlock
