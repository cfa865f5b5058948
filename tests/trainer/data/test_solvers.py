"""The solvers: each against an exact solution, and for what its equation keeps."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest

from vastrun.trainer.data import (
    burgers,
    darcy,
    diffusion_reaction,
    diffusion_sorption,
    reaction_diffusion,
    shallow_water,
)
from vastrun.trainer.data.initial_conditions import Array, InitialConditions, draw
from vastrun.trainer.data.pdebench import Grid
from vastrun.trainer.data.stride import Stride


def rows(u0: InitialConditions, chosen: slice | Array) -> InitialConditions:
    return InitialConditions(**{field.name: getattr(u0, field.name)[chosen] for field in fields(u0)})


def smooth(n: int) -> InitialConditions:
    u0 = draw(4 * n, np.random.default_rng(4))
    return rows(u0, np.flatnonzero(~u0.folded & ~u0.windowed)[:n])


def integral(u0: InitialConditions, y: Array) -> Array:
    """From 0 to y of smooth conditions, the whole line being their circle unrolled: (n, *y.shape)."""
    wide = (-1, *[1] * y.ndim)
    total = np.zeros((len(u0), *y.shape))
    for mode in range(4):
        amplitude, wavenumber, phase = (
            part[:, mode].reshape(wide) for part in (u0.amplitude, u0.wavenumber, u0.phase)
        )
        rate = 2 * np.pi * np.maximum(wavenumber, 1)
        wave = (np.cos(phase) - np.cos(rate * y + phase)) / rate
        total += amplitude * np.where(wavenumber > 0, wave, np.sin(phase) * y)
    return total * u0.sign.reshape(wide)


def cole_hopf(u0: InitialConditions, nu: float, x: Array, t: float) -> Array:
    """Burgers' exact solution (Hopf 1950, Cole 1951) by quadrature, in logarithms: (n, X)."""
    y = x[:, None] - np.linspace(-2.6, 2.6, 8001)
    kappa = nu / math.pi
    exponent = -np.square(x[:, None] - y) / (4 * kappa * t) - integral(u0, y) / (2 * kappa)
    weight = np.exp(exponent - exponent.max(axis=2, keepdims=True))
    return (weight * (x[:, None] - y) / t).sum(axis=2) / weight.sum(axis=2)


def error_of_burgers(u0: InitialConditions, points: int) -> Array:
    """Relative, of each trajectory, at t = 0.5."""
    grid = Grid(points=points, frames=2, dt=0.5)
    at = np.arange(0, points, points // 64)
    exact = cole_hopf(u0, 0.01, grid.x[at], 0.5)
    wrong = burgers.solve(u0, 0.01, grid)[:, 1, at] - exact
    return np.sqrt((wrong**2).mean(axis=1) / (exact**2).mean(axis=1))


@pytest.mark.slow
def test_burgers_is_that_of_cole_and_hopf_and_converges_with_second_order() -> None:
    coarse, fine = (error_of_burgers(smooth(6), points) for points in (256, 512))
    assert coarse.max() < 3e-3
    assert coarse.mean() / fine.mean() > 3


def test_burgers_keeps_the_mean_and_loses_energy() -> None:
    u = burgers.solve(draw(16, np.random.default_rng(5)), 0.01, Grid(points=64, frames=9, dt=0.1))
    np.testing.assert_allclose(u.mean(axis=2), u[:, :1].mean(axis=2).repeat(9, axis=1), atol=1e-12)
    assert np.diff((u**2).mean(axis=2)).max() < 0


def test_a_trajectory_of_burgers_does_not_depend_on_those_solved_beside_it() -> None:
    u0, grid = draw(7, np.random.default_rng(6)), Grid(points=32, frames=4, dt=0.1)
    together = burgers.solve(u0, 0.1, grid)
    alone = [burgers.solve(rows(u0, slice(row, row + 1)), 0.1, grid)[0] for row in range(7)]
    np.testing.assert_array_equal(together, alone)


def test_the_solver_has_at_least_as_many_cells_as_shocks_need() -> None:
    assert [burgers.cells_of(points, 0.01) for points in (64, 100, 256, 512)] == [256, 300, 256, 512]
    assert [burgers.cells_of(points, 0.001) for points in (64, 256, 2048)] == [1024, 1024, 2048]


def residual(a: Array, u: Array, beta: float) -> Array:
    """What flows out of each cell less what springs up in it, relative to that."""
    across, along = darcy.conductances(a)
    zero_x, zero_y = np.zeros_like(u[:, :1]), np.zeros_like(u[:, :, :1])
    down = across * np.diff(u, axis=1, prepend=zero_x, append=zero_x)
    right = along * np.diff(u, axis=2, prepend=zero_y, append=zero_y)
    source = beta / u[0].size
    return (-np.diff(down, axis=1) - np.diff(right, axis=2)) / source - 1


def test_darcy_solves_its_equations_and_what_springs_up_leaves_through_the_walls() -> None:
    a = darcy.draw(16, np.random.default_rng(7))(48)
    u = darcy.solve(a, 1.0)
    assert np.abs(residual(a, u, 1.0)).max() < 1e-8
    across, along = darcy.conductances(a)
    out = sum(
        (faces * cells).sum(axis=1)
        for faces, cells in (
            (across[:, 0], u[:, 0]),
            (across[:, -1], u[:, -1]),
            (along[:, :, 0], u[:, :, 0]),
            (along[:, :, -1], u[:, :, -1]),
        )
    )
    np.testing.assert_allclose(out, 1.0, rtol=1e-9)
    assert u.min() > 0
    np.testing.assert_allclose(darcy.solve(a, 7.0), 7 * u, rtol=1e-12)


def test_darcy_is_the_series_where_the_coefficient_is_one() -> None:
    x = (np.arange(64) + 0.5) / 64
    mode = np.arange(1, 160, 2)
    sines = np.sin(np.pi * mode[:, None] * x)
    weight = 16 / np.pi**4 / (mode[:, None] * mode * (mode[:, None] ** 2 + mode**2))
    exact = sines.T @ weight @ sines
    wrong = darcy.solve(np.ones((1, 64, 64)), 1.0)[0] - exact
    assert np.sqrt((wrong**2).mean() / (exact**2).mean()) < 1e-3


def test_coefficients_of_darcy_are_those_of_pdebench_on_any_grid() -> None:
    bumps = darcy.draw(600, np.random.default_rng(8))
    a = bumps(32)
    assert set(np.unique(a)) == {0.1, 1.0}
    assert (a == 1.0).mean() == pytest.approx(0.5, abs=0.05)
    assert darcy.solve(a[:300], 1.0).mean() == pytest.approx(0.1523, abs=0.015)
    agreeing = bumps(64)[:, ::2, ::2] == a
    assert agreeing.mean() > 0.95


def test_diffusion_reaction_follows_the_reaction_alone_where_the_fields_are_flat() -> None:
    begin = np.empty((1, 2, 16, 16))
    begin[:, 0], begin[:, 1] = 0.8, -0.3
    u, v = 0.8, -0.3
    for _ in range(100_000):
        u, v = u + 1e-5 * (u - u**3 - 0.005 - v), v + 1e-5 * (u - v)
    end = diffusion_reaction.solve(begin, Grid(points=16, frames=11, dt=0.1))[0, -1]
    np.testing.assert_allclose(end[0], u, atol=1e-4)
    np.testing.assert_allclose(end[1], v, atol=1e-4)


def test_the_first_frame_on_a_coarser_grid_determines_those_that_follow() -> None:
    rng, grid = np.random.default_rng(3), Grid(points=64, frames=3, dt=0.5)
    fine = diffusion_reaction.solve(diffusion_reaction.draw(2, 64, rng), grid)
    mean_square: dict[bool, Array] = {}
    for averaged in (True, False):
        stride = Stride(points=2, averaged=averaged)
        known = np.stack([np.moveaxis(stride.coarsen(np.moveaxis(one, 1, -1)), -1, 1) for one in fine])
        found = diffusion_reaction.solve(known[:, 0], replace(grid, points=32))
        error = np.square(found - known)[:, 1:].mean(axis=(-2, -1))
        mean_square[averaged] = error / np.square(known)[:, 1:].mean(axis=(-2, -1))
    assert np.sqrt(mean_square[True]).mean() < 0.45
    # Single points of white noise are worse than no knowledge at all, which has an error of 1.
    assert np.sqrt(mean_square[False]).mean() > 1


def test_diffusion_follows_the_heat_equation_and_nothing_leaves_through_the_walls() -> None:
    # v feels nothing of its own but decay and diffusion, as long as u is held small: it is linear in (u, v).
    x = (np.arange(32) + 0.5) / 32
    wave = np.cos(3 * np.pi * x)
    small = 1e-5
    begin = np.zeros((2, 2, 32, 32))
    begin[0, 1] = small * wave[:, None]
    fields = diffusion_reaction.solve(begin, Grid(points=32, frames=2, dt=0.1))[:, 1]
    response = (fields[0] - fields[1]) / small  # less what the constant feed does
    rate = (3 * np.pi / diffusion_reaction.SIDE) ** 2
    matrix = np.array([[1 - 0.001 * rate, -1], [1, -1 - 0.005 * rate]])
    values, vectors = np.linalg.eig(0.1 * matrix)
    wanted = (vectors @ np.diag(np.exp(values)) @ np.linalg.inv(vectors))[:, 1].real
    for channel in range(2):
        np.testing.assert_allclose(response[channel], wanted[channel] * np.tile(wave[:, None], 32), atol=2e-5)


def test_a_dam_breaks_as_stoker_says() -> None:
    n, t = 128, 0.5
    x = shallow_water.SIDE * ((np.arange(n) + 0.5) / n - 0.5)
    begin = np.where(x < 0, 2.0, 1.0)[:, None] * np.ones((1, n))
    low, high = 1.0, 2.0  # of the water behind the shock: what the rarefaction and the shock agree on
    for _ in range(60):
        middle = (low + high) / 2
        fan = 2 * (math.sqrt(2) - math.sqrt(middle))
        shock = (middle - 1) * math.sqrt((middle + 1) / (2 * middle))
        low, high = (middle, high) if fan > shock else (low, middle)
    speed = middle * fan / (middle - 1)
    xi = x / t
    exact = np.select(
        [xi < -math.sqrt(2), xi < fan - math.sqrt(middle), xi < speed],
        [2.0, (2 * math.sqrt(2) - xi) ** 2 / 9, middle],
        1.0,
    )
    height = shallow_water.solve(begin[None], Grid(points=n, frames=2, dt=t))[0, 1]
    assert np.abs(height - exact[:, None]).mean() < 0.012
    np.testing.assert_allclose(height, height[:, :1] * np.ones((1, n)), atol=1e-12)


def test_shallow_water_keeps_its_mass_and_its_symmetry_until_it_reaches_the_walls() -> None:
    begin = shallow_water.heights(np.array([0.3, 0.5]), 48)
    area = (begin - 1).sum(axis=(1, 2)) * (shallow_water.SIDE / 48) ** 2
    np.testing.assert_allclose(area, np.pi * np.array([0.3, 0.5]) ** 2, rtol=0.02)
    height = shallow_water.solve(begin, Grid(points=48, frames=6, dt=0.1))
    mass = height.sum(axis=(2, 3))
    np.testing.assert_allclose(mass, mass[:, :1].repeat(6, axis=1), rtol=1e-6)
    assert height.min() > 0
    np.testing.assert_array_equal(height, height.swapaxes(2, 3))
    np.testing.assert_allclose(height, height[:, :, ::-1], atol=1e-12)


def test_reaction_diffusion_grows_like_the_logistic_curve_where_the_field_is_flat() -> None:
    u = np.array([[0.01], [0.3], [1.0]]) * np.ones(64)
    grid = Grid(points=64, frames=5, dt=0.25)
    fields = reaction_diffusion.solve(u, 0.5, 3.0, grid)
    growth = np.exp(3.0 * grid.t)[:, None]
    for row, start in enumerate(u[:, 0]):
        np.testing.assert_allclose(fields[row], start * growth / (1 + start * (growth - 1)) * np.ones(64))


def test_reaction_diffusion_follows_the_heat_equation_where_nothing_grows() -> None:
    x = Grid(points=64, frames=1, dt=1).x
    u = (0.5 + 0.5 * np.sin(2 * np.pi * x))[None]
    end = reaction_diffusion.solve(u, 0.1, 1e-12, Grid(points=64, frames=2, dt=0.2))[0, 1]
    np.testing.assert_allclose(
        end, 0.5 + 0.5 * np.sin(2 * np.pi * x) * np.exp(-4 * np.pi**2 * 0.02), atol=1e-9
    )


def test_reaction_diffusion_converges_with_second_order() -> None:
    u = 0.5 + 0.45 * np.sin(2 * np.pi * np.array([[1], [2], [3]]) * Grid(points=64, frames=1, dt=1).x)
    grid = Grid(points=64, frames=3, dt=0.2)
    exact, coarse, fine = (reaction_diffusion.solve(u, 0.01, 5.0, grid, steps=steps) for steps in (256, 4, 8))
    assert 3.5 < np.abs(coarse - exact).max() / np.abs(fine - exact).max() < 4.5


def test_reaction_diffusion_stays_between_0_and_1() -> None:
    u = reaction_diffusion.begin(draw(8, np.random.default_rng(9)), 256)
    assert (u.min(), u.max()) == (pytest.approx(0, abs=0.05), 1.0)
    end = reaction_diffusion.solve(u, 0.01, 5.0, Grid(points=64, frames=3, dt=0.2))
    assert -1e-9 < end.min() < end.max() < 1 + 1e-9


def error_of_a_linear_isotherm(points: int, max_step_s: float) -> float:
    """Against diffusion into a half-space at constant retardation (Carslaw & Jaeger 1959, section 2.5)."""
    isotherm = diffusion_sorption.Isotherm(factor=2.0, exponent=1.0)
    u0, t = 0.1, 40.0
    grid = Grid(points=points, frames=2, dt=t)
    found = diffusion_sorption.solve(np.array([u0]), grid, isotherm=isotherm, max_step_s=max_step_s)[0, 1]
    place = grid.x / (2 * math.sqrt(diffusion_sorption.DIFFUSIVITY / 3.0 * t))
    exact = u0 + (1 - u0) * np.vectorize(math.erfc)(place)
    return float(np.abs(found - exact)[grid.x < 0.45].max())


def test_diffusion_with_a_linear_isotherm_is_the_exact_one_and_converges_with_second_order() -> None:
    coarse, fine = error_of_a_linear_isotherm(64, 20.0), error_of_a_linear_isotherm(128, 10.0)
    assert coarse < 1.5e-3
    assert coarse / fine > 3.2


def test_sorption_advances_as_far_in_four_times_the_time_as_twice_the_place() -> None:
    # Into a half-space, u depends on x / sqrt(t) alone, whatever the isotherm.
    grid = Grid(points=128, frames=5, dt=10.0)
    u = diffusion_sorption.solve(np.array([0.02, 0.15]), grid)
    early = np.stack([np.interp(grid.x[1:60], 2 * grid.x, row) for row in u[:, 1]])
    np.testing.assert_allclose(u[:, 4, 1:60], early, atol=4e-3)


def test_what_flows_in_is_what_the_water_and_the_grains_contain() -> None:
    grid = Grid(points=64, frames=101, dt=1.0)
    u = diffusion_sorption.solve(np.array([0.05, 0.2]), grid)
    content = diffusion_sorption.FREUNDLICH.content(u).mean(axis=2)
    flux = np.stack([diffusion_sorption.fluxes(u[:, frame]) for frame in range(101)], axis=1)
    net = flux[:, :, 0] - flux[:, :, -1]
    later = 0.5 * (net[:, 11:] + net[:, 10:-1]).sum(axis=1)
    np.testing.assert_allclose(content[:, -1] - content[:, 10], later, rtol=2e-3)
    assert (np.diff(u.mean(axis=2), axis=1) > 0)[:, :20].all()
    assert 0 < u.min() < u.max() < 1


def test_a_sample_of_sorption_does_not_depend_on_those_solved_beside_it() -> None:
    grid, u0 = Grid(points=32, frames=3, dt=5.0), np.array([0.001, 0.1, 0.2])
    together = diffusion_sorption.solve(u0, grid)
    np.testing.assert_array_equal(together[1], diffusion_sorption.solve(u0[1:2], grid)[0])
