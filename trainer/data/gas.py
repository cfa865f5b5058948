"""Gas: the compressible Navier-Stokes equations of an ideal gas in a periodic box with one to three axes.

    rho_t + div(rho v) = 0
    (rho v)_t + div(rho v v + p) = div s,   s = eta (grad v + grad v^T) + (zeta - 2 eta / 3) div v
    e_t + div((e + p) v - s v) = 0,   e = p / (gamma - 1) + rho v^2 / 2,   gamma = 5 / 3

Takamoto et al. 2022 (arXiv 2210.07182), appendix D; heat is not conducted. The state has the channels
density, pressure and velocity by axis: (n, 2 + axes, *X).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vastrun.trainer.data.initial_conditions import Array, RandomWaves, draw_waves, largest, root_mean_square

GAMMA = 5 / 3
_CFL = 0.4
_VISCOUS_CFL = 0.7
_CELLS_AT_ONCE = 2048
"""Cells of the rows that are solved together: larger temporaries do not fit into the cache."""
_MIN_SHARE = 1e-6
"""Smallest density and pressure of a face, relative to those of its cell: the slopes may not reach zero."""
_DENSITY, _TEMPERATURE = (0.5, 2.0), (0.5, 2.0)
"""Bounds of the mean density and temperature of a sample, drawn evenly in their logarithms."""
_PERTURBATION = (0.05, 0.3)
"""Bounds of the largest relative change of density and temperature."""


@dataclass(frozen=True, kw_only=True)
class Gas:
    """A viscous gas in a periodic box. Its shear and bulk viscosity are equal, as in all published files."""

    viscosity: float
    side: float = 1.0
    """Length of the box along an axis."""

    def solve(self, state: Array, frames: int, dt: float, points: int) -> Array:
        """Solve from `state` (n, K, *cells) and average the cells to `points`: (n, frames, K, *points).

        Finite volumes of second order: monotonised central slopes of the state (van Leer 1977), the HLLC flux
        (Toro, Spruce & Speares 1994), central viscous fluxes and SSP-RK2. Every row has its own time steps.
        """
        fields = np.empty((len(state), frames, state.shape[1], *[points] * (state.ndim - 2)))
        # Rows do not depend on each other, and few cells at once stay in a processor's cache.
        block = max(1, _CELLS_AT_ONCE // math.prod(state.shape[2:]))
        for begin in range(0, len(state), block):
            rows = slice(begin, begin + block)
            q = conserved(state[rows])
            for frame in range(frames):
                if frame:
                    q = self.advance(q, dt)
                fields[rows, frame] = primitive(_averaged(q, points))
        return fields

    def advance(self, q: Array, duration: float) -> Array:
        """Return the conserved values `q` after `duration`."""
        q, left = q.copy(), np.full(len(q), duration)
        while (active := np.flatnonzero(left > 0)).size:
            rows = q[active]
            state = primitive(rows)
            step = np.minimum(self._longest_step(state), left[active])
            wide = step.reshape(-1, *[1] * (q.ndim - 1))
            half = rows + wide * self._tendency(state)
            rows += half
            rows += wide * self._tendency(primitive(half))
            rows *= 0.5
            q[active] = rows
            # The last step has exactly what is left, so that nothing remains by rounding.
            left[active] = np.where(step >= left[active], 0.0, left[active] - step)
        return q

    def _longest_step(self, state: Array) -> Array:
        """Return the longest stable step of each row: (n,)."""
        axes, cell = state.ndim - 2, self.side / state.shape[-1]
        speeds = axes * _sound_speed(state)
        for axis in range(axes):
            speeds += np.abs(state[:, 2 + axis])
        speed = speeds.reshape(len(state), -1).max(axis=1)
        diffusivity = 7 / 3 * self.viscosity / state[:, 0].reshape(len(state), -1).min(axis=1)
        viscous = 2 * axes * diffusivity / (_VISCOUS_CFL * cell**2)
        return 1 / (speed / (_CFL * cell) + viscous)

    def _tendency(self, state: Array) -> Array:
        """Return the time derivative of the conserved values."""
        cell = self.side / state.shape[-1]
        total = np.zeros_like(state)
        slopes = [_central_differences(state[:, 2:], axis, cell) for axis in range(state.ndim - 2)]
        for axis in range(state.ndim - 2):
            flux = _hllc(*_faces(state, axis), axis)
            if self.viscosity:
                self._subtract_viscous_flux(flux, state[:, 2:], slopes, axis, cell)
            total -= _differences(flux, 2 + axis)
        total /= cell
        return total

    def _subtract_viscous_flux(
        self, flux: Array, velocity: Array, slopes: Sequence[Array], axis: int, cell: float
    ) -> None:
        """Subtract the stress and its power on the faces around each cell along `axis` from a flux.

        `slopes`: the derivatives of the velocities along each axis.
        """
        along, axes = 2 + axis, velocity.ndim - 2
        # The derivative across a face is that of its two cells; those along it are means of theirs.
        extended = _extended(velocity, axis, 1)
        across = _differences(extended, along)
        across /= cell
        stress = self.viscosity * across
        stress[:, axis] *= 2 + (1 - 2 / 3)
        for other in set(range(axes)) - {axis}:
            beside = _face_means(_extended(slopes[other][:, [axis, other]], axis, 1), along)
            stress[:, other] += self.viscosity * beside[:, 0]
            stress[:, axis] += self.viscosity * (1 - 2 / 3) * beside[:, 1]
        flux[:, 2:] -= stress
        stress *= _face_means(extended, along)
        flux[:, 1] -= stress.sum(axis=1)


def conserved(state: Array) -> Array:
    """Return density, total energy and momenta of density, pressure and velocities: (n, K, *X)."""
    density, pressure, velocity = state[:, :1], state[:, 1:2], state[:, 2:]
    energy = pressure / (GAMMA - 1) + 0.5 * density * np.square(velocity).sum(axis=1, keepdims=True)
    return np.concatenate([density, energy, density * velocity], axis=1)


def primitive(q: Array) -> Array:
    """Return density, pressure and velocities; the inverse of `conserved`."""
    density, energy, momentum = q[:, :1], q[:, 1:2], q[:, 2:]
    velocity = momentum / density
    pressure = (GAMMA - 1) * (energy - 0.5 * (momentum * velocity).sum(axis=1, keepdims=True))
    return np.concatenate([density, pressure, velocity], axis=1)


def _sound_speed(state: Array) -> Array:
    speed: Array = np.sqrt(GAMMA * state[:, 1] / state[:, 0])
    return speed


def _averaged(q: Array, points: int) -> Array:
    """Average cells (n, K, *cells) to (n, K, *points)."""
    for axis in range(2, q.ndim):
        shape = (*q.shape[:axis], points, -1, *q.shape[axis + 1 :])
        q = q.reshape(shape).mean(axis=axis + 1)
    return q


def _extended(fields: Array, axis: int, cells: int) -> Array:
    """Continue periodic fields (n, K, *X) by a number of cells on both sides along an axis."""
    along = 2 + axis
    ends = _part(fields, along, -cells, None), fields, _part(fields, along, 0, cells)
    return np.concatenate(ends, axis=along)


def _differences(fields: Array, along: int) -> Array:
    """Return the differences of neighbours along an axis of the array, one fewer than fields."""
    differences: Array = _part(fields, along, 1, None) - _part(fields, along, 0, -1)
    return differences


def _face_means(fields: Array, along: int) -> Array:
    """Return the means of neighbours along an axis of the array, one fewer than fields."""
    means: Array = _part(fields, along, 1, None) + _part(fields, along, 0, -1)
    means *= 0.5
    return means


def _part(fields: Array, along: int, begin: int, end: int | None) -> Array:
    """Return a view of the places from `begin` to `end` along an axis of the array."""
    return fields[(slice(None),) * along + (slice(begin, end),)]


def _central_differences(velocity: Array, axis: int, cell: float) -> Array:
    """Return the derivatives of velocities (n, axes, *X) along an axis by central differences."""
    extended = _extended(velocity, axis, 1)
    differences: Array = _part(extended, 2 + axis, 2, None) - _part(extended, 2 + axis, 0, -2)
    differences /= 2 * cell
    return differences


def _faces(state: Array, axis: int) -> tuple[Array, Array]:
    """Return the states on both sides of the faces around each cell along `axis`, one more than cells."""
    along = 2 + axis
    extended = _extended(state, axis, 2)
    difference = _differences(extended, along)
    forward, backward = _part(difference, along, 1, None), _part(difference, along, 0, -1)
    half = forward + backward
    half *= 0.25
    # Twice the smaller of both slopes where they have one sign, and zero elsewhere.
    np.minimum(half, np.maximum(np.minimum(forward, backward), 0), out=half)
    np.maximum(half, np.minimum(np.maximum(forward, backward), 0), out=half)
    centre = _part(extended, along, 1, -1)
    before, after = _part(centre, along, 0, -1), _part(centre, along, 1, None)
    left, right = before + _part(half, along, 0, -1), after - _part(half, along, 1, None)
    for side, cells in ((left, before), (right, after)):
        np.maximum(side[:, :2], _MIN_SHARE * cells[:, :2], out=side[:, :2])
    return left, right


def _hllc(left: Array, right: Array, axis: int) -> Array:
    """Return the flux of the conserved values through faces, from the states on both sides."""
    (velocity, sound_speed), (next_velocity, next_sound_speed) = (
        (side[:, 2 + axis], _sound_speed(side)) for side in (left, right)
    )
    slow = np.minimum(velocity - sound_speed, next_velocity - next_sound_speed)
    fast = np.maximum(velocity + sound_speed, next_velocity + next_sound_speed)
    inertia, next_inertia = left[:, 0] * (slow - velocity), right[:, 0] * (fast - next_velocity)
    middle = right[:, 1] - left[:, 1] + inertia * velocity - next_inertia * next_velocity
    middle /= inertia - next_inertia
    chosen = middle >= 0
    side = np.where(chosen[:, None], left, right)
    wave = np.where(chosen, slow, fast)
    # No wave to the side of the face: the flux is that of the chosen state.
    bound = np.where(chosen, np.minimum(slow, 0), np.maximum(fast, 0))
    return _flux(side, axis, np.where(chosen, inertia, next_inertia), wave, middle, bound)


def _flux(side: Array, axis: int, inertia: Array, wave: Array, middle: Array, bound: Array) -> Array:
    """Return the flux of a state, with the change of its conserved values between the outer wave and the
    contact `middle`, which is carried at the speed `bound`."""
    density, pressure, along = side[:, 0], side[:, 1], side[:, 2 + axis]
    energy = np.square(side[:, 2:]).sum(axis=1)
    energy *= 0.5 * density
    energy += pressure / (GAMMA - 1)
    behind = inertia / (wave - middle)
    flux = np.empty_like(side)
    mass = density * along + bound * (behind - density)
    flux[:, 0] = mass
    flux[:, 2:] = side[:, 2:] * mass[:, None]
    # The velocity along the axis is that of the contact behind the wave, the others are as before.
    flux[:, 2 + axis] += pressure + bound * behind * (middle - along)
    change = behind * (energy / density + (middle - along) * (middle + pressure / inertia)) - energy
    flux[:, 1] = (energy + pressure) * along + bound * change
    return flux


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
