"""Gas fields: random initial conditions of a gas in a periodic box, which can be evaluated on any grid."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vastrun.trainer.data.gas import GAMMA
from vastrun.trainer.data.initial_conditions import Array, RandomWaves, draw_waves, largest, root_mean_square

_DENSITY, _TEMPERATURE = (0.5, 2.0), (0.5, 2.0)
"""Bounds of the mean density and temperature of a sample, drawn evenly in their logarithms."""
_PERTURBATION = (0.05, 0.3)
"""Bounds of the largest relative change of density and temperature."""


@dataclass(frozen=True, kw_only=True)
class GasFields:
    """Random density, temperature and velocity of `n` samples: means, and waves by channel."""

    mean: Array
    """(n, 2): of density and temperature, which is pressure over density"""
    perturbation: Array
    """(n, 2): largest relative change of density and temperature"""
    waves: RandomWaves
    """Fields of density, temperature and the velocity along each axis, to be scaled."""

    def __len__(self) -> int:
        return len(self.mean)

    def __call__(self, cells: int, mach: float) -> Array:
        """Return density, pressure and velocities at cell centres: (n, 2 + axes, *cells).

        The root mean square of the velocity is `mach` times the speed of sound of the mean state.
        """
        fields = self.waves((np.arange(cells) + 0.5) / cells)
        scalars, velocity = fields[:, :2], fields[:, 2:]
        wide = (*self.mean.shape, *[1] * self.waves.axes)
        mean, perturbation = self.mean.reshape(wide), self.perturbation.reshape(wide)
        scalars = mean * (1 + perturbation * scalars / largest(scalars))
        sound_speed = np.sqrt(GAMMA * mean[:, 1:])
        velocity = mach * sound_speed * velocity / root_mean_square(velocity)
        density, temperature = scalars[:, :1], scalars[:, 1:]
        return np.concatenate([density, density * temperature, velocity], axis=1)


def draw(n: int, axes: int, rng: np.random.Generator) -> GasFields:
    """Draw `n` initial conditions of a box with `axes` axes."""
    bounds = np.log([_DENSITY, _TEMPERATURE])
    return GasFields(
        mean=np.exp(rng.uniform(bounds[:, 0], bounds[:, 1], size=(n, 2))),
        perturbation=rng.uniform(*_PERTURBATION, size=(n, 2)),
        waves=draw_waves(n, 2 + axes, axes, rng),
    )
