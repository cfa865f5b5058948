"""The solvers of gases and flows: exact solutions, orders of convergence, and what they conserve."""

import math
from functools import reduce

import numpy as np
import pytest

from vastrun.trainer.data import gas, incompressible
from vastrun.trainer.data.gas import GAMMA, Gas, conserved, primitive
from vastrun.trainer.data.initial_conditions import Array
from vastrun.trainer.data.pdebench import Grid


def centres(cells: int) -> Array:
    return (np.arange(cells) + 0.5) / cells


def relative(found: Array, exact: Array) -> float:
    return float(np.sqrt(np.square(found - exact).mean() / np.square(exact).mean()))


def error_of_a_density_wave(cells: int) -> float:
    """Of a wave of density that drifts once around the box, at constant pressure."""
    k = 2 * np.pi
    # Means of the cells, not values at their centres: those differ by second order.
    density = 1 + 0.2 * np.sin(k * centres(cells)) * np.sinc(1 / cells)
    state = np.stack([density, np.ones(cells), np.ones(cells)])[None]
    end = Gas(viscosity=0.0).solve(state, 2, 1.0, cells)[0, 1]
    np.testing.assert_allclose(end[1:], 1.0, atol=1e-10)
    return float(np.abs(end[0] - density).mean())


def test_a_wave_of_density_drifts_with_the_gas_and_the_error_falls_with_second_order() -> None:
    coarse, fine = error_of_a_density_wave(32), error_of_a_density_wave(64)
    assert coarse < 0.01
    assert coarse / fine > 3.2


def test_a_gas_keeps_mass_energy_and_momentum_with_any_number_of_axes() -> None:
    for axes, cells in ((1, 32), (2, 16), (3, 8)):
        state = gas.draw(2, axes, np.random.default_rng(axes))(cells, 0.8)
        assert state.shape == (2, 2 + axes, *[cells] * axes)
        q = conserved(state)
        np.testing.assert_allclose(primitive(q), state, rtol=1e-12)
        total = [
            each.reshape(2, 2 + axes, -1).sum(axis=2) for each in (q, Gas(viscosity=0.02).advance(q, 0.05))
        ]
        np.testing.assert_allclose(total[1], total[0], rtol=1e-12, atol=1e-10)


def shock_tube_middle() -> tuple[float, float]:
    """Pressure and velocity between the waves of Sod's tube, at our gamma (Toro 2009, chapter 4)."""
    left, right = (1.0, 1.0), (0.125, 0.1)

    def change(p: float, side: tuple[float, float]) -> float:
        density, pressure = side
        if p > pressure:
            a, b = 2 / ((GAMMA + 1) * density), (GAMMA - 1) / (GAMMA + 1) * pressure
            return (p - pressure) * math.sqrt(a / (p + b))
        sound = math.sqrt(GAMMA * pressure / density)
        return 2 * sound / (GAMMA - 1) * ((p / pressure) ** ((GAMMA - 1) / (2 * GAMMA)) - 1)

    low, high = 0.1, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if change(middle, left) + change(middle, right) < 0 else (low, middle)
    return middle, -change(middle, left)


def test_between_the_waves_of_a_shock_tube_pressure_and_velocity_are_the_exact_ones() -> None:
    cells = 400
    x = centres(cells)
    inner = (x > 0.25) & (x < 0.75)  # two tubes, back to back, so that the box is periodic
    state = np.stack([np.where(inner, 1.0, 0.125), np.where(inner, 1.0, 0.1), np.zeros(cells)])[None]
    density, pressure, velocity = Gas(viscosity=0.0).solve(state, 2, 0.08, cells)[0, 1]
    exact_pressure, exact_velocity = shock_tube_middle()
    contact = 0.75 + exact_velocity * 0.08
    between = (x > contact - 0.015) & (x < contact + 0.015)
    np.testing.assert_allclose(pressure[between], exact_pressure, rtol=0.01)
    np.testing.assert_allclose(velocity[between], exact_velocity, rtol=0.01)
    assert density.min() > 0.12
    np.testing.assert_allclose(density, density[::-1], atol=1e-9)


def test_random_gas_fields_have_the_mach_number_that_is_asked_for() -> None:
    fields = gas.draw(5, 2, np.random.default_rng(4))
    state = fields(32, 0.3)
    sound = np.sqrt(GAMMA * fields.mean[:, 1])
    speed = np.sqrt(np.square(state[:, 2:]).sum(axis=1).mean(axis=(1, 2)))
    np.testing.assert_allclose(speed, 0.3 * sound, rtol=1e-9)
    assert state[:, :2].min() > 0
    np.testing.assert_allclose(
        fields(64, 0.3).mean(axis=(2, 3)), state.mean(axis=(2, 3)), rtol=0.05, atol=0.05
    )


def steady_vortex(cells: int, viscosity: float) -> tuple[incompressible.Flow, Array, Array]:
    """A vortex at rest on the walls: the flow, the force that keeps it up, and its exact velocity."""
    strength = 0.3

    def velocity(x: Array, y: Array) -> Array:
        s, pi = np.sin, np.pi
        u = pi * s(pi * x) ** 2 * s(2 * pi * y)
        return strength * np.stack([u, -pi * s(2 * pi * x) * s(pi * y) ** 2])

    x, y = np.meshgrid(centres(cells), centres(cells), indexing="ij")
    s, c, pi = np.sin, np.cos, np.pi
    u, v = velocity(x, y) / strength
    cross = pi**2 * s(2 * pi * x) * s(2 * pi * y)
    along_x = u * cross + v * 2 * pi**2 * s(pi * x) ** 2 * c(2 * pi * y)
    along_y = -u * 2 * pi**2 * c(2 * pi * x) * s(pi * y) ** 2 - v * cross
    laplacian_u = (2 * c(2 * pi * x) - 4 * s(pi * x) ** 2) * pi**3 * s(2 * pi * y)
    laplacian_v = (4 * s(pi * y) ** 2 - 2 * c(2 * pi * y)) * pi**3 * s(2 * pi * x)
    force = strength**2 * np.stack([along_x, along_y]) - viscosity * strength * np.stack(
        [laplacian_u, laplacian_v]
    )
    node = np.arange(cells + 1) / cells
    stream = strength * np.sin(pi * node[:, None]) ** 2 * np.sin(pi * node) ** 2
    flow = incompressible.Flow(
        u=cells * np.diff(stream, axis=1)[None],
        v=-cells * np.diff(stream, axis=0)[None],
        particles=np.ones((1, cells, cells)),
    )
    return flow, force[None], velocity(x, y)


def error_of_a_vortex(cells: int) -> float:
    flow, force, exact = steady_vortex(cells, 0.02)
    end = incompressible.solve(flow, force, Grid(points=cells, frames=2, dt=0.5), viscosity=0.02)[0, 1]
    np.testing.assert_allclose(end[2], 1.0, atol=1e-12)
    return relative(end[:2], exact)


def test_a_vortex_that_a_force_keeps_up_stays_and_the_error_falls_with_second_order() -> None:
    coarse, fine = error_of_a_vortex(16), error_of_a_vortex(32)
    assert coarse < 0.1
    assert coarse / fine > 3.2


def test_a_flow_has_no_divergence_stops_at_walls_and_keeps_its_particles() -> None:
    flow, force = incompressible.draw(2, np.random.default_rng(5))(32)
    end = incompressible.Solver(cells=32).advance(flow, force, 0.3)
    for state in (flow, end):
        divergence = 32 * (np.diff(state.u, axis=1) + np.diff(state.v, axis=2))
        assert np.abs(divergence).max() < 1e-10
        for wall in (state.u[:, 0], state.u[:, -1], state.v[:, :, 0], state.v[:, :, -1]):
            assert np.abs(wall).max() < 1e-12
    total = [each.particles.sum(axis=(1, 2)) for each in (flow, end)]
    np.testing.assert_allclose(total[1], total[0], rtol=1e-12)
    assert 0.45 < end.particles.min() < end.particles.max() < 1.55
    assert np.abs(end.particles - flow.particles).max() > 0.05


def test_without_a_force_a_flow_loses_energy() -> None:
    flow, force = incompressible.draw(2, np.random.default_rng(6))(32)
    grid = Grid(points=32, frames=6, dt=0.1)
    energy = np.square(incompressible.solve(flow, 0 * force, grid)[:, :, :2]).sum(axis=(2, 3, 4))
    assert np.diff(energy, axis=1).max() < 0


@pytest.mark.parametrize("which", ["gas", "flow"])
def test_a_sample_does_not_depend_on_those_solved_beside_it(which: str) -> None:
    if which == "gas":
        state = gas.draw(3, 2, np.random.default_rng(7))(16, 0.5)
        whole, alone = (Gas(viscosity=0.01).solve(each, 3, 0.02, 16) for each in (state, state[1:2]))
    else:
        flow, force = incompressible.draw(3, np.random.default_rng(8))(32)
        grid, one = Grid(points=16, frames=3, dt=0.05), np.array([1])
        whole = incompressible.solve(flow, force, grid)
        alone = incompressible.solve(flow.rows(one), force[one], grid)
    np.testing.assert_array_equal(whole[1:2], alone)


def wave(cells: int, moved: float = 0.0) -> Array:
    """Means over the cells of a wave across the cube's diagonal, moved along each axis: (X, Y, Z)."""
    phase = 2 * np.pi * (centres(cells) - moved)
    return np.sin(reduce(np.add.outer, [phase] * 3)) * np.sinc(1 / cells) ** 3


def error_of_a_diagonal_wave(cells: int, t: float) -> float:
    """Of a wave of density that drifts along the diagonal, at constant pressure."""
    state = np.ones((1, 5, cells, cells, cells))
    state[:, 0] += 0.2 * wave(cells)
    end = Gas(viscosity=0.0).solve(state, 2, t, cells)[0, 1]
    np.testing.assert_allclose(end[1:], 1.0, atol=1e-10)
    return float(np.abs(end[0] - 1 - 0.2 * wave(cells, t)).mean())


@pytest.mark.slow
def test_a_wave_across_the_diagonal_drifts_with_the_gas_and_the_error_falls_with_second_order() -> None:
    coarse, fine = error_of_a_diagonal_wave(12, 0.05), error_of_a_diagonal_wave(24, 0.05)
    assert coarse < 0.02
    assert coarse / fine > 3.2


@pytest.mark.slow
def test_sound_travels_along_the_diagonal_at_its_speed() -> None:
    cells, size, speed = 24, 1e-4, math.sqrt(GAMMA)
    # Three wavelengths fit the diagonal: along each axis the wave moves by speed * t / sqrt(3).
    t = 0.1 * math.sqrt(3) / speed
    background = np.array([1.0, 1.0, 0.0, 0.0, 0.0])[:, None, None, None]
    amplitude = np.array([1 / speed**2, 1.0, *[1 / (speed * math.sqrt(3))] * 3])[:, None, None, None]
    begin, exact = (background + size * amplitude * wave(cells, moved) for moved in (0.0, 0.1))
    end = Gas(viscosity=0.0).solve(begin[None], 2, t, cells)[0, 1]
    wrong, changed = (np.abs(end - other).mean(axis=(1, 2, 3)) for other in (exact, begin))
    assert (wrong < 0.05 * changed).all()


def test_a_gas_with_exchanged_axes_flows_the_same_way() -> None:
    state = gas.draw(1, 3, np.random.default_rng(3))(8, 0.5)
    turned = np.moveaxis(state[:, [0, 1, 4, 2, 3]], -1, 2)
    one, other = (Gas(viscosity=0.01).solve(each, 2, 0.02, 8)[:, 1] for each in (state, turned))
    np.testing.assert_allclose(other, np.moveaxis(one[:, [0, 1, 4, 2, 3]], -1, 2), atol=1e-9)


def test_viscosity_slows_a_shear_flow_along_any_axis_down_as_the_heat_equation_says() -> None:
    cells, eta, t = 16, 0.02, 0.1
    profile = 1e-3 * np.sin(2 * np.pi * centres(cells))
    # The discrete derivative of a wave is smaller by (1 - cos(k h)) / ((k h)^2 / 2).
    rate = eta * 2 * (1 - math.cos(2 * np.pi / cells)) * cells**2
    for across, along in ((0, 1), (1, 2), (2, 0)):
        field = np.moveaxis(np.broadcast_to(profile, (cells,) * 3), -1, across)
        state = np.zeros((1, 5, cells, cells, cells))
        state[:, :2], state[:, 2 + along] = 1.0, field
        end = Gas(viscosity=eta).solve(state, 2, t, cells)[0, 1]
        np.testing.assert_allclose(end[2 + along], field * math.exp(-rate * t), atol=2e-6)
