"""What follows of a task's name: its axes, its files, its parameters. No torch."""

from vastrun.trainer.job.data_config import DataConfig

# Axes of the grid, values at each point, whether the problem has no time.


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
