"""Diffusion: levels of noise, and the ways from noise to a field (Karras et al. 2022, Song et al. 2023).

Shapes: B samples, K channels, X points by axis, N steps. Fields have deviation 1; a level is the deviation of
the noise on them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

LOWEST, HIGHEST = 0.1, 20.0
_CURVE = 7.0
_LOG_MEAN, _LOG_DEVIATION = 0.4, 1.4

Denoise = Callable[[Tensor, Tensor], Tensor]
"""A noisy field (B, K, *X) and its levels (B,) to the clean one."""


def level_of(normal: Tensor) -> Tensor:
    """Return levels to train at, log-normal, from standard normal numbers.

    Higher than those of images: what follows from the given fields is learned where noise hides the rest.
    """
    return (_LOG_MEAN + _LOG_DEVIATION * normal).exp()


def weight_of(level: Tensor) -> Tensor:
    """Weigh squared errors so that what the network has to learn counts alike at all levels."""
    return (level.square() + 1) / level.square()


def ladder(steps: int) -> list[float]:
    """Return `steps` levels from the highest down to the lowest: close together where the noise is low."""
    ends = HIGHEST ** (1 / _CURVE), LOWEST ** (1 / _CURVE)
    return [(ends[0] + place / max(steps - 1, 1) * (ends[1] - ends[0])) ** _CURVE for place in range(steps)]


def ladder_at(place: Tensor, steps: int) -> Tensor:
    """Return the levels at these places of `ladder(steps)`, computed where `place` is: (B,) to (B,).

    Not by an index into a tensor of all levels: to copy that to a GPU, the host waits for the device.
    """
    high, low = HIGHEST ** (1 / _CURVE), LOWEST ** (1 / _CURVE)
    return (high + place.double() / max(steps - 1, 1) * (low - high)).pow(_CURVE).float()


def euler(denoise: Denoise, noise: Tensor, steps: int) -> Tensor:
    """Make a field (B, K, *X) of standard normal noise, along the probability flow, by so many calls.

    By Euler's method: with a few long steps Heun's is worse, since it asks the denoiser about where a long
    step has led astray.
    """
    levels = [*ladder(steps), 0.0]
    x = levels[0] * noise
    for high, low in pairwise(levels):
        clean = denoise(x, x.new_full((len(x),), high))
        x = clean + low / high * (x - clean)
    return x


def heun_step(denoise: Denoise, x: Tensor, high: Tensor, low: Tensor) -> Tensor:
    """Take x (B, K, *X) at levels `high` (B,) to where the probability flow leads at levels `low` (B,)."""
    above, below = (level.reshape(-1, *(1,) * (x.ndim - 1)) for level in (high, low))
    slope = (x - denoise(x, high)) / above
    there = x + (below - above) * slope
    return x + (below - above) * (slope + (there - denoise(there, low)) / below) / 2


def consistent(denoise: Denoise, noise: Tensor) -> Tensor:
    """Make a field (B, K, *X) of standard normal noise (N, B, K, *X), by one call of the model a step.

    Each but the first begins from what the one before found, with noise on it again.
    """
    levels = [HIGHEST, 1.0][: len(noise)]
    x = torch.zeros_like(noise[0])
    for level, fresh in zip(levels, noise, strict=True):
        x = denoise(x + (level**2 - LOWEST**2) ** 0.5 * fresh, x.new_full((len(x),), level))
    return x
