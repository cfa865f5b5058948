"""Gas: the compressible Navier-Stokes equations of an ideal gas in a periodic box with one to three axes.

    rho_t + div(rho v) = 0
    (rho v)_t + div(rho v v + p) = div s,   s = eta (grad v + grad v^T) + (zeta - 2 eta / 3) div v
    e_t + div((e + p) v - s v) = 0,   e = p / (gamma - 1) + rho v^2 / 2,   gamma = 5 / 3

Takamoto et al. 2022 (arXiv 2210.07182), appendix D; heat is not conducted. The state has the channels
density, pressure and velocity by axis: (n, 2 + axes, *X).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vastrun.trainer.data.initial_conditions import Array

GAMMA = 5 / 3
_CFL = 0.4
_VISCOUS_CFL = 0.7
_MIN_SHARE = 1e-6
"""Smallest density and pressure of a face, relative to those of its cell: the slopes may not reach zero."""
Slope = Callable[[Array, Array], Array]


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
        q = conserved(state)
        fields = np.empty((len(q), frames, q.shape[1], *[points] * (q.ndim - 2)))
        for frame in range(frames):
            if frame:
                q = self.advance(q, dt)
            fields[:, frame] = primitive(_averaged(q, points))
        return fields

    def advance(self, q: Array, duration: float) -> Array:
        """Return the conserved values `q` after `duration`."""
        q, left = q.copy(), np.full(len(q), duration)
        while (active := np.flatnonzero(left > 0)).size:
            rows = q[active]
            step = np.minimum(self._longest_step(rows), left[active])
            wide = step.reshape(-1, *[1] * (q.ndim - 1))
            half = rows + wide * self._tendency(rows)
            q[active] = 0.5 * (rows + half + wide * self._tendency(half))
            # The last step has exactly what is left, so that nothing remains by rounding.
            left[active] = np.where(step >= left[active], 0.0, left[active] - step)
        return q

    def _longest_step(self, q: Array) -> Array:
        """Return the longest stable step of each row: (n,)."""
        axes, cell = q.ndim - 2, self.side / q.shape[-1]
        state = primitive(q)
        speed = (
            (np.abs(state[:, 2:]) + _sound_speed(state)[:, None]).sum(axis=1).reshape(len(q), -1).max(axis=1)
        )
        diffusivity = 7 / 3 * self.viscosity / state[:, 0].reshape(len(q), -1).min(axis=1)
        viscous = 2 * axes * diffusivity / (_VISCOUS_CFL * cell**2)
        return 1 / (speed / (_CFL * cell) + viscous)

    def _tendency(self, q: Array) -> Array:
        """Return the time derivative of the conserved values."""
        state, cell = primitive(q), self.side / q.shape[-1]
        gradients = _velocity_gradients(state, cell)
        total = np.zeros_like(q)
        for axis in range(q.ndim - 2):
            flux = _hllc(*_faces(state, axis), axis)
            if self.viscosity:
                flux -= self._viscous_flux(state, gradients, axis, cell)
            # flux[i] is that through the face between the cells i and i + 1.
            total -= (flux - np.roll(flux, 1, axis=2 + axis)) / cell
        return total

    def _viscous_flux(self, state: Array, gradients: Array, axis: int, cell: float) -> Array:
        """Return the stress and its power on the faces beyond each cell along `axis`: like `state`."""
        beyond = 2 + axis
        velocity, axes = state[:, 2:], state.ndim - 2
        # The derivative across a face is that of its two cells; those along it are means of theirs.
        on_face = 0.5 * (gradients + np.roll(gradients, -1, axis=beyond + 1))
        on_face[:, :, axis] = (np.roll(velocity, -1, axis=beyond) - velocity) / cell
        divergence = sum(on_face[:, other, other] for other in range(axes))
        stress = self.viscosity * (on_face[:, :, axis] + on_face[:, axis])
        stress[:, axis] += self.viscosity * (1 - 2 / 3) * divergence
        mean = 0.5 * (velocity + np.roll(velocity, -1, axis=beyond))
        power = (mean * stress).sum(axis=1, keepdims=True)
        return np.concatenate([np.zeros_like(power), power, stress], axis=1)


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


def _velocity_gradients(state: Array, cell: float) -> Array:
    """Return the derivative of velocity i along axis j by central differences: (n, i, j, *X)."""
    velocity = state[:, 2:]
    derivatives = [
        (np.roll(velocity, -1, axis=2 + axis) - np.roll(velocity, 1, axis=2 + axis)) / (2 * cell)
        for axis in range(state.ndim - 2)
    ]
    return np.stack(derivatives, axis=2)


def _faces(state: Array, axis: int) -> tuple[Array, Array]:
    """Return the states on both sides of the face beyond each cell along `axis`."""
    along = 2 + axis
    forward = np.roll(state, -1, axis=along) - state
    backward = np.roll(forward, 1, axis=along)
    steepest = 2 * np.minimum(np.abs(forward), np.abs(backward))
    half = 0.5 * np.clip(0.5 * (forward + backward), -steepest, steepest) * (forward * backward > 0)
    left, right = state + half, state - half
    for side in (left, right):
        side[:, :2] = np.maximum(side[:, :2], _MIN_SHARE * state[:, :2])
    return left, np.roll(right, -1, axis=along)


def _hllc(left: Array, right: Array, axis: int) -> Array:
    """Return the flux of the conserved values through faces, from the states on both sides."""
    speeds = [(side[:, 2 + axis], _sound_speed(side)) for side in (left, right)]
    slow = np.minimum(*(velocity - sound_speed for velocity, sound_speed in speeds))
    fast = np.maximum(*(velocity + sound_speed for velocity, sound_speed in speeds))
    inertia = [side[:, 0] * (bound - side[:, 2 + axis]) for side, bound in ((left, slow), (right, fast))]
    middle = (right[:, 1] - left[:, 1] + inertia[0] * left[:, 2 + axis] - inertia[1] * right[:, 2 + axis]) / (
        inertia[0] - inertia[1]
    )
    chosen = middle >= 0
    side = np.where(chosen[:, None], left, right)
    bound = np.where(chosen, np.minimum(slow, 0), np.maximum(fast, 0))
    return _flux(side, axis) + bound[:, None] * (
        _behind_wave(side, np.where(chosen, slow, fast), middle, axis) - conserved(side)
    )


def _behind_wave(side: Array, bound: Array, middle: Array, axis: int) -> Array:
    """Return the conserved values between the outer wave `bound` and the contact `middle`."""
    along = side[:, 2 + axis]
    density = side[:, 0] * (bound - along) / (bound - middle)
    energy = conserved(side)[:, 1] / side[:, 0] + (middle - along) * (
        middle + side[:, 1] / (side[:, 0] * (bound - along))
    )
    velocity = side[:, 2:].copy()
    velocity[:, axis] = middle
    return density[:, None] * np.concatenate([np.ones_like(side[:, :1]), energy[:, None], velocity], axis=1)


def _flux(side: Array, axis: int) -> Array:
    along, q = side[:, 2 + axis, None], conserved(side)
    flux = q * along
    flux[:, 1] += side[:, 1] * side[:, 2 + axis]
    flux[:, 2 + axis] += side[:, 1]
    return flux
