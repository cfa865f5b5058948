"""Data checks: find faults between the tasks of a training, its batch and what is held out. No torch."""

import sys

from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.job.data_config import PARAMETERS, DataConfig

Check = tuple[bool, str, str]
"""One check: True when there is a fault, its key relative to `train`, its text."""


def tasks_checks(config: TrainConfig) -> list[Check]:
    """Check that each task is listed once."""
    tasks = [data.task for data in config.data]
    return [
        (
            data.task in tasks[:number],
            f"{key}.task",
            f"{data.task} appears twice: list several parameters in one entry",
        )
        for number, (key, data) in enumerate(tasks_by_key(config))
    ]


def tasks_by_key(config: TrainConfig) -> list[tuple[str, DataConfig]]:
    """Return the tasks with their keys; a single task has no number, since the list may be omitted."""
    if len(config.data) == 1:
        return [("data", config.data[0])]
    return [(f"data[{number}]", data) for number, data in enumerate(config.data)]


def batch_checks(config: TrainConfig, world_size: int) -> list[Check]:
    """Check the batch against the ranks and against the windows of each task."""
    # A rank's share means nothing while the batch itself does not fit, so that only the cause is reported.
    share, rest = divmod(config.batch, world_size)
    size = config.micro_batch or 1
    return [
        (rest > 0, "batch", f"expected a multiple of the {world_size} ranks, got {config.batch}"),
        *(check for key, data in tasks_by_key(config) for check in _size_checks(config, key, data)),
        *(check for key, data in tasks_by_key(config) for check in _parameter_checks(key, data)),
        (
            rest == 0 and share % size > 0,
            "micro_batch",
            f"expected a divisor of a rank's {share} windows, got {size}",
        ),
    ]


def _parameter_checks(at: str, data: DataConfig) -> list[Check]:
    """Check the ranges of parameters, and that unseen ones are not trained."""
    if data.task not in PARAMETERS:
        return []
    known = set(data.parameters_of(data.task)).intersection(data.unseen_parameters_of(data.task))
    trained = "; ".join(", ".join(f"{value:g}" for value in values) for values in sorted(known))
    return [
        *(
            (low >= high, f"{at}.ranges.{key}", f"expected the lower value first, got {low:g}, {high:g}")
            for key, (low, high) in data.ranges.items()
        ),
        *(
            (not values, f"{at}.unseen.{key}", "expected at least one value, got none")
            for key, values in data.unseen.items()
        ),
        (bool(known), f"{at}.unseen", f"expected values that are not trained, got {trained}"),
    ]


def _size_checks(config: TrainConfig, at: str, data: DataConfig) -> list[Check]:
    # The size of a user's data set is unknown until it is read: here it counts as large enough.
    files = len(data.parameters_of(data.task)) if data.task in PARAMETERS else sys.maxsize
    trajectories = (data.train - data.validation) * files
    windows = trajectories * (1 if data.steady else max(1, data.frames - config.unroll))
    return [
        (
            config.batch > windows,
            "batch",
            f"expected at most the {windows} windows of {at}, got {config.batch}",
        ),
        (
            config.remainder == "drop" and config.batch > trajectories,
            "remainder",
            f"drop leaves none of the {trajectories} trajectories of {at}: a batch is larger",
        ),
        (
            not data.steady and config.unroll >= data.frames,
            "unroll",
            f"expected less than {at}.frames ({data.frames}), got {config.unroll}",
        ),
    ]


def validation_checks(config: TrainConfig) -> list[Check]:
    """Check when trajectories that are held out are rolled out, and that there are some."""
    every, saved = config.evaluate_every, config.checkpoint_every
    return [
        (
            every is not None and every % saved > 0 and saved % every > 0,
            "evaluate_every",
            f"expected a divisor or a multiple of checkpoint_every ({saved}), got {every}",
        ),
        *(check for key, data in tasks_by_key(config) for check in _held_out_checks(key, data, every)),
    ]


def _held_out_checks(at: str, data: DataConfig, every: int | None) -> list[Check]:
    return [
        (
            data.validation >= data.train,
            f"{at}.validation",
            f"expected less than {at}.train ({data.train}), got {data.validation}",
        ),
        (
            every is not None and not data.validation,
            f"{at}.validation",
            "expected at least 1 for evaluate_every to roll out, got 0",
        ),
        (
            every is None and data.validation > 0,
            f"{at}.validation",
            f"expected evaluate_every, without which these {data.validation} are not used",
        ),
    ]
