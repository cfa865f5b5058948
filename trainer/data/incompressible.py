"""2-D incompressible Navier-Stokes equations in the unit square, with walls and a force on particles.

    v_t + div(v v) + grad p = nu lap v + c f,   div v = 0,   v = 0 on the walls
    c_t + div(c v) = 0

Takamoto et al. 2022 (arXiv 2210.07182), appendix D: nu is 0.01, and the force f differs from sample to sample
but not in time. c is the density of the particles that it acts on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vastrun.trainer.data.initial_conditions import Array, RandomWaves, draw_waves, largest, root_mean_square
from vastrun.trainer.data.layouts import IncompressibleLayout
from vastrun.trainer.data.pdebench import Grid, whole_cells
from vastrun.trainer.data.problem import Problem

VISCOSITY = 0.01
_CFL = 0.6
_VISCOUS_CFL = 0.6
_MIN_CELLS = 32
_SPEED, _FORCE = (0.2, 0.6), (0.5, 2.0)
"""Bounds of the root mean square of the velocity at first, and of the force."""
_CONTRAST = 0.5
"""Largest difference of the particles' density from its mean, which is 1."""


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Flow on a staggered grid of n x n cells: normal velocities on the faces, particles in the cells."""

    u: Array
    """(B, n + 1, n): velocity along x; zero on the walls"""
    v: Array
    """(B, n, n + 1): velocity along y; zero on the walls"""
    particles: Array
    """(B, n, n)"""

    def rows(self, chosen: Array) -> Flow:
        """Return some samples."""
        return Flow(u=self.u[chosen], v=self.v[chosen], particles=self.particles[chosen])

    def mix(self, share: float, other: Flow) -> Flow:
        """Return `share` of this flow plus the rest of the other."""
        pairs = ((getattr(self, name), getattr(other, name)) for name in ("u", "v", "particles"))
        u, v, particles = (share * this + (1 - share) * that for this, that in pairs)
        return Flow(u=u, v=v, particles=particles)

    def centred(self) -> Array:
        """Return velocities and particles at cell centres: (B, 3, n, n)."""
        u, v = 0.5 * (self.u[:, 1:] + self.u[:, :-1]), 0.5 * (self.v[:, :, 1:] + self.v[:, :, :-1])
        return np.stack([u, v, self.particles], axis=1)


def solve(flow: Flow, force: Array, grid: Grid, *, viscosity: float = VISCOSITY) -> Array:
    """Solve with the force (n, 2, cells, cells) and average the cells: (n, T, 5, X, X), the force included.

    Finite volumes of second order on a staggered grid (Harlow & Welch 1965) with central fluxes, monotonised
    central slopes for the particles, SSP-RK3 (Shu & Osher 1988) and a projection after each stage (Chorin
    1968), exact by cosine modes. Every row has its own time steps.
    """
    solver = Solver(cells=flow.particles.shape[1], viscosity=viscosity)
    fields = np.empty((len(force), grid.frames, 5, grid.points, grid.points))
    fields[:, :, 3:] = _averaged(force, grid.points)[:, None]
    for frame in range(grid.frames):
        if frame:
            flow = solver.advance(flow, force, grid.dt)
        fields[:, frame, :3] = _averaged(flow.centred(), grid.points)
    return fields


class Solver:
    """Solver on one grid."""

    def __init__(self, *, cells: int, viscosity: float = VISCOSITY) -> None:
        self._cell, self._viscosity = 1 / cells, viscosity
        number = np.arange(cells)
        modes = np.sqrt(2 / cells) * np.cos(np.pi / cells * number[:, None] * (number + 0.5))
        modes[0] /= math.sqrt(2)
        rate = 2 * (1 - np.cos(np.pi * number / cells)) * cells**2
        laplacian = rate[:, None] + rate
        laplacian[0, 0] = np.inf  # the mean pressure is arbitrary: zero
        self._modes, self._inverse = modes, 1 / laplacian

    def advance(self, flow: Flow, force: Array, duration: float) -> Flow:
        """Return the flow after `duration`."""
        left = np.full(len(force), duration)
        state = Flow(u=flow.u.copy(), v=flow.v.copy(), particles=flow.particles.copy())
        while (active := np.flatnonzero(left > 0)).size:
            rows = state.rows(active)
            step = np.minimum(self._longest_step(rows), left[active])
            moved = self._step(rows, force[active], step[:, None, None])
            state.u[active], state.v[active], state.particles[active] = moved.u, moved.v, moved.particles
            left[active] = np.where(step >= left[active], 0.0, left[active] - step)
        return state

    def _longest_step(self, flow: Flow) -> Array:
        speed = sum(np.abs(part).reshape(len(part), -1).max(axis=1) for part in (flow.u, flow.v))
        viscous = 4 * self._viscosity / (_VISCOUS_CFL * self._cell**2)
        longest: Array = 1 / (speed / (_CFL * self._cell) + viscous)
        return longest

    def _step(self, flow: Flow, force: Array, step: Array) -> Flow:
        first = self._euler(flow, force, step)
        second = flow.mix(3 / 4, self._euler(first, force, step))
        return flow.mix(1 / 3, self._euler(second, force, step))

    def _euler(self, flow: Flow, force: Array, step: Array) -> Flow:
        u, v = self._accelerate(flow, force, step)
        u, v = self._project(u, v)
        return Flow(u=u, v=v, particles=flow.particles + step * self._particle_rate(flow))

    def _accelerate(self, flow: Flow, force: Array, step: Array) -> tuple[Array, Array]:
        """Return the velocities after a step without pressure; those on the walls stay zero."""
        u, v = flow.u, flow.v
        push = flow.particles[:, None] * force
        along_y = _transport(u, v, self._cell, self._viscosity) + _between(push[:, 0])
        # The other component is the first one with the axes exchanged.
        along_x = _transport(_turned(v), _turned(u), self._cell, self._viscosity) + _between(
            _turned(push[:, 1])
        )
        new_u, new_v = u.copy(), v.copy()
        new_u[:, 1:-1] += step * along_y
        new_v[:, :, 1:-1] += step * _turned(along_x)
        return new_u, new_v

    def _project(self, u: Array, v: Array) -> tuple[Array, Array]:
        """Return the velocities less the gradient that leaves them without divergence."""
        divergence = (np.diff(u, axis=1) + np.diff(v, axis=2)) / self._cell
        waves = (self._modes @ divergence @ self._modes.T) * self._inverse
        # The Laplacian of the cosine modes is negative.
        pressure = -(self._modes.T @ waves @ self._modes)
        u[:, 1:-1] -= np.diff(pressure, axis=1) / self._cell
        v[:, :, 1:-1] -= np.diff(pressure, axis=2) / self._cell
        return u, v

    def _particle_rate(self, flow: Flow) -> Array:
        rate = np.zeros_like(flow.particles)
        rate -= np.diff(_particle_flux(flow.particles, flow.u), axis=1) / self._cell
        across = _particle_flux(_turned(flow.particles), _turned(flow.v))
        rate -= _turned(np.diff(across, axis=1)) / self._cell
        return rate


def _transport(u: Array, v: Array, cell: float, viscosity: float) -> Array:
    """Return the rate of u (B, n + 1, n) by convection and viscosity on its inner faces: (B, n - 1, n)."""
    # Beyond a wall along which the flow moves, u is mirrored with the other sign: it is zero on the wall.
    padded = np.concatenate([-u[:, :, :1], u, -u[:, :, -1:]], axis=2)
    along = np.square(0.5 * (u[:, 1:] + u[:, :-1])) - viscosity * np.diff(u, axis=1) / cell
    at_corner = 0.5 * (v[:, 1:] + v[:, :-1])
    across = 0.5 * (padded[:, 1:-1, 1:] + padded[:, 1:-1, :-1]) * at_corner
    across -= viscosity * np.diff(padded[:, 1:-1], axis=2) / cell
    rate: Array = -(np.diff(along, axis=1) + np.diff(across, axis=2)) / cell
    return rate


def _particle_flux(particles: Array, u: Array) -> Array:
    """Return what flows through the faces along x; the walls let nothing through: (B, n + 1, n)."""
    difference = np.diff(particles, axis=1)
    edge = np.zeros_like(particles[:, :1])
    backward = np.concatenate([edge, difference], axis=1)
    forward = np.concatenate([difference, edge], axis=1)
    steepest = 2 * np.minimum(np.abs(forward), np.abs(backward))
    half = 0.5 * np.clip(0.5 * (forward + backward), -steepest, steepest) * (forward * backward > 0)
    flux = np.zeros_like(u)
    inner = u[:, 1:-1]
    flux[:, 1:-1] = np.where(inner > 0, (particles + half)[:, :-1], (particles - half)[:, 1:]) * inner
    return flux


def _between(cells: Array) -> Array:
    """Return the means on the inner faces along x: (B, n - 1, n)."""
    return 0.5 * (cells[:, 1:] + cells[:, :-1])


def _turned(fields: Array) -> Array:
    return fields.swapaxes(1, 2)


def _averaged(fields: Array, points: int) -> Array:
    """Average cells (n, K, cells, cells) to (n, K, points, points)."""
    n, channels, cells, _ = fields.shape
    shape = (n, channels, points, cells // points, points, cells // points)
    means: Array = fields.reshape(shape).mean(axis=(3, 5))
    return means


@dataclass(frozen=True, kw_only=True)
class FlowFields:
    """Random initial conditions and forces, which can be evaluated on any grid."""

    speed: Array
    """(n,): root mean square of the velocity"""
    strength: Array
    """(n,): root mean square of the force"""
    waves: RandomWaves
    """Fields of the stream function, the particles and the two components of the force, to be scaled."""

    def __len__(self) -> int:
        return len(self.speed)

    def __call__(self, cells: int) -> tuple[Flow, Array]:
        """Return the flow at first, without divergence and at rest on the walls, and the force."""
        node = np.arange(cells + 1) / cells
        window = np.square(np.sin(np.pi * node))
        stream = self.waves(node)[:, 0] * window[:, None] * window
        u, v = cells * np.diff(stream, axis=2), -cells * np.diff(stream, axis=1)
        fields = self.waves((np.arange(cells) + 0.5) / cells)
        particles = (1 + _CONTRAST * fields[:, 1:2] / largest(fields[:, 1:2]))[:, 0]
        flow = Flow(u=u, v=v, particles=particles)
        scale = self.speed[:, None, None] / root_mean_square(flow.centred()[:, :2])[:, 0]
        force = self.strength[:, None, None, None] * fields[:, 2:] / root_mean_square(fields[:, 2:])
        return Flow(u=scale * u, v=scale * v, particles=particles), force


def draw(n: int, rng: np.random.Generator) -> FlowFields:
    """Draw `n` initial conditions and forces."""
    speed, strength = rng.uniform(*_SPEED, size=n), rng.uniform(*_FORCE, size=n)
    return FlowFields(speed=speed, strength=strength, waves=draw_waves(n, 4, 2, rng))


def _solve(begin: FlowFields, grid: Grid) -> Array:
    flow, force = begin(whole_cells(grid.points, _MIN_CELLS))
    return solve(flow, force, grid)


PROBLEM = Problem(
    task="incompressible",
    generator="vastrun incompressible 1",
    file="ns_incom_inhom_2d_512-0.h5".format,
    further_file="ns_incom_inhom_2d_512-{}.h5".format,
    channels=("Vx", "Vy", "particles", "force x", "force y"),
    layout=lambda grid: IncompressibleLayout(grid=grid),
    draw=lambda n, _, rng: draw(n, rng),
    solve=_solve,
    symmetry="none",
    static=2,
    chunk=8,
    cells_of=lambda points: whole_cells(points, _MIN_CELLS),
    method={"viscosity": VISCOSITY},
)
