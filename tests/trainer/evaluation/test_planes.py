"""Planes: what pictures show of a field, and where it is in the units of the data."""

import pytest
import torch

from vastrun.trainer.evaluation.planes import Coordinates, planes_of
from vastrun.trainer.job.data_config import DataConfig


@pytest.mark.parametrize("grid", [(7,), (4, 6)])
def test_a_line_and_a_square_are_shown_whole(grid: tuple[int, ...]) -> None:
    field = torch.rand(3, *grid)
    [plane] = planes_of(grid)
    assert torch.equal(plane.cut(field), field)
    assert plane.label(Coordinates.of(DataConfig(task="darcy"), grid).axes) == ""


def test_a_cube_is_cut_through_its_middle_along_each_pair_of_axes() -> None:
    grid = (4, 6, 8)
    field = torch.rand(2, *grid)
    planes = planes_of(grid)
    expected = [field[..., 4], field[:, :, 3], field[:, 2]]
    assert all(torch.equal(plane.cut(field), cut) for plane, cut in zip(planes, expected, strict=True))
    axes = Coordinates.of(DataConfig(task="shallow_water"), grid).axes
    # The fifth of eight cells of a domain from -2.5 to 2.5.
    assert [plane.label(axes) for plane in planes] == ["z = 0.312", "y = 0.417", "x = 0.625"]


def test_axes_have_the_values_of_the_data_and_those_of_a_users_task_count_points() -> None:
    known = Coordinates.of(DataConfig(task="diffusion_reaction", dt=0.05), (16, 16))
    assert [(axis.name, axis.low, axis.high) for axis in known.axes] == [("x", -1.0, 1.0), ("y", -1.0, 1.0)]
    assert known.axes[0].centres[[0, -1]] == pytest.approx([-0.9375, 0.9375])
    assert (known.at(3), known.channels) == ("t = 0.15", ("u", "v"))
    own = Coordinates.of(DataConfig(task="mine:waves", dt=0.05), (16,))
    assert own.axes[0].name == "x, point"
    assert own.axes[0].centres.tolist() == list(range(16))
    assert (own.at(3), own.channels) == ("frame 3", ())
