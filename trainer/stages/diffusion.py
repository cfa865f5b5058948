"""Diffusion: noise levels and samplers (Karras et al. 2022, Song et al. 2023).

Shapes: B samples, K channels, X points by axis, N steps. Fields have deviation 1; a level is the deviation of
the noise on them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

MIN_LEVEL, MAX_LEVEL = 0.1, 20.0
_RHO = 7.0
_LOG_MEAN, _LOG_DEVIATION = 0.4, 1.4

Denoise = Callable[[Tensor, Tensor], Tensor]
"""Maps a noisy field (B, K, *X) and its noise levels (B,) to the clean field."""


def training_level(normal: Tensor) -> Tensor:
    """Return log-normal training levels, from standard normal numbers.

    Higher than for images: the dependence on the context fields is learned where noise hides all else.
    """
    return (_LOG_MEAN + _LOG_DEVIATION * normal).exp()


def loss_weight(level: Tensor) -> Tensor:
    """Return weights of squared errors with which the network's own target counts equally at all levels."""
    return (level.square() + 1) / level.square()


def noise_levels(steps: int) -> list[float]:
    """Return `steps` levels from the highest to the lowest, denser where the noise is low."""
    ends = MAX_LEVEL ** (1 / _RHO), MIN_LEVEL ** (1 / _RHO)
    return [(ends[0] + place / max(steps - 1, 1) * (ends[1] - ends[0])) ** _RHO for place in range(steps)]


def noise_level_at(place: Tensor, steps: int) -> Tensor:
    """Return the levels at these places of `noise_levels(steps)`, on the device of `place`: (B,) to (B,).

    Not by indexing a tensor of all levels: to copy that to a GPU, the host would wait for the device.
    """
    high, low = MAX_LEVEL ** (1 / _RHO), MIN_LEVEL ** (1 / _RHO)
    return (high + place.double() / max(steps - 1, 1) * (low - high)).pow(_RHO).float()


def euler_sample(denoise: Denoise, noise: Tensor, steps: int) -> Tensor:
    """Sample a field (B, K, *X) from standard normal noise along the probability flow, in `steps` calls.

    Euler's method: with a few long steps Heun's method is worse, because it evaluates the denoiser where a
    long step has led astray.
    """
    levels = [*noise_levels(steps), 0.0]
    x = levels[0] * noise
    for high, low in pairwise(levels):
        clean = denoise(x, x.new_full((len(x),), high))
        x = clean + low / high * (x - clean)
    return x


def heun_step(denoise: Denoise, x: Tensor, high: Tensor, low: Tensor) -> Tensor:
    """Move x (B, K, *X) along the probability flow from levels `high` (B,) to levels `low` (B,)."""
    above, below = (level.reshape(-1, *(1,) * (x.ndim - 1)) for level in (high, low))
    slope = (x - denoise(x, high)) / above
    there = x + (below - above) * slope
    return x + (below - above) * (slope + (there - denoise(there, low)) / below) / 2


def consistency_sample(denoise: Denoise, noise: Tensor) -> Tensor:
    """Sample a field (B, K, *X) from standard normal noise (N, B, K, *X), with one model call per step.

    Each step after the first starts from the previous result with fresh noise added.
    """
    levels = [MAX_LEVEL, 1.0][: len(noise)]
    x = torch.zeros_like(noise[0])
    for level, fresh in zip(levels, noise, strict=True):
        x = denoise(x + (level**2 - MIN_LEVEL**2) ** 0.5 * fresh, x.new_full((len(x),), level))
    return x
