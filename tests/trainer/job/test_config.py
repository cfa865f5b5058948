"""What follows of a task's name: its axes, its files, its parameters. No torch."""

import pytest

from vastrun.trainer.job.data_config import PARAMETERS, DataConfig

# Axes of the grid, values at each point, whether the problem has no time.
TASKS = {
    "advection": (1, 1, False),
    "burgers": (1, 1, False),
    "compressible_1d": (1, 3, False),
    "compressible_2d": (2, 4, False),
    "compressible_3d": (3, 5, False),
    "darcy": (2, 1, True),
    "diffusion_reaction": (2, 2, False),
    "diffusion_sorption": (1, 1, False),
    "incompressible": (2, 5, False),
    "reaction_diffusion": (1, 1, False),
    "shallow_water": (2, 1, False),
}


@pytest.mark.parametrize("task", PARAMETERS)
def test_a_built_in_task_has_its_axes_and_files_of_its_size(task: str) -> None:
    axes, channels, steady = TASKS[task]
    data = DataConfig(task=task, points=32, frames=5, train=3, test=4)
    assert (data.axes, data.steady) == (axes, steady)
    values = 7 * (2 if steady else 5) * channels * 32**axes
    assert data.file_gb == pytest.approx(4 * values / 1e9)


def test_a_task_of_the_users_code_has_an_axis_and_no_file() -> None:
    own = DataConfig(task="mytask:make")
    assert (own.axes, own.steady, own.file_gb) == (1, False, 0.0)


def test_parameters_are_all_combinations_of_what_is_trained_and_of_what_is_only_tested_on() -> None:
    data = DataConfig(
        task="compressible_2d",
        machs=(0.1, 1.0),
        etas=(0.01,),
        ranges={"etas": (0.01, 1.0)},
        range_values=3,
        unseen={"machs": (0.5,)},
    )
    assert data.parameters_of("compressible_2d") == (
        (0.1, 0.01),
        (0.1, 0.1),
        (0.1, 1.0),
        (1.0, 0.01),
        (1.0, 0.1),
        (1.0, 1.0),
    )
    assert data.unseen_parameters_of("compressible_2d") == ((0.5, 0.01), (0.5, 0.1), (0.5, 1.0))
    assert data.has_ranges("compressible_2d")
    assert not data.has_ranges("burgers")
    assert data.unseen_parameters_of("burgers") == ()
