"""The solver of gases in a cube: order of convergence, and that no axis is special."""

import math
from functools import reduce

import numpy as np
import pytest

from vastrun.trainer.data import gas
from vastrun.trainer.data.gas import GAMMA, Gas
from vastrun.trainer.data.initial_conditions import Array


def wave(cells: int, moved: float = 0.0) -> Array:
    """Means over the cells of a wave across the cube's diagonal, moved along each axis: (X, Y, Z)."""
    phase = 2 * np.pi * ((np.arange(cells) + 0.5) / cells - moved)
    return np.sin(reduce(np.add.outer, [phase] * 3)) * np.sinc(1 / cells) ** 3


def error_of_a_density_wave(cells: int, t: float) -> float:
    """Of a wave of density that drifts along the diagonal, at constant pressure."""
    state = np.ones((1, 5, cells, cells, cells))
    state[:, 0] += 0.2 * wave(cells)
    end = Gas(viscosity=0.0).solve(state, 2, t, cells)[0, 1]
    np.testing.assert_allclose(end[1:], 1.0, atol=1e-10)
    return float(np.abs(end[0] - 1 - 0.2 * wave(cells, t)).mean())


@pytest.mark.slow
def test_a_wave_across_the_diagonal_drifts_with_the_gas_and_the_error_falls_with_second_order() -> None:
    coarse, fine = error_of_a_density_wave(12, 0.05), error_of_a_density_wave(24, 0.05)
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
    x = (np.arange(cells) + 0.5) / cells
    profile = 1e-3 * np.sin(2 * np.pi * x)
    # The discrete derivative of a wave is smaller by (1 - cos(k h)) / ((k h)^2 / 2).
    rate = eta * 2 * (1 - math.cos(2 * np.pi / cells)) * cells**2
    for across, along in ((0, 1), (1, 2), (2, 0)):
        field = np.moveaxis(np.broadcast_to(profile, (cells,) * 3), -1, across)
        state = np.zeros((1, 5, cells, cells, cells))
        state[:, :2], state[:, 2 + along] = 1.0, field
        end = Gas(viscosity=eta).solve(state, 2, t, cells)[0, 1]
        np.testing.assert_allclose(end[2 + along], field * math.exp(-rate * t), atol=2e-6)
