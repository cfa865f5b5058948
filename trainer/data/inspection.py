"""Inspection: checks the files of a task."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path

from vastrun.trainer import data
from vastrun.trainer.data.chunks import ranges, rows_at_once
from vastrun.trainer.data.samples import Samples
from vastrun.trainer.job.data_config import DataConfig

_READ_BATCH = 64


def check(config: DataConfig, folder: Path, *, quick: bool = False) -> list[str]:
    """Read every sample of the task.

    Returns lines for the user. Raises DataError. When `quick`, only the layout of each file and the first and
    last sample of each split are read.
    """
    splits, unseen = data.splits(config, folder), data.unseen(config, folder)
    for split in (*splits.all, *(() if unseen is None else (unseen,))):
        for numbers in _end_numbers(split) if quick else _all_numbers(split):
            split.read(numbers)
    kind = "steady problems" if splits.train.steady else "trajectories"
    return [
        f"{config.task}: {len(splits.train)} {kind} to train on, {len(splits.test)} to test on",
        *([] if unseen is None else [f"  {len(unseen)} to test on at parameters that are not trained"]),
        *(
            f"  {path.name}: {stride} are read"
            for path, stride in splits.train.strides.items()
            if not stride.is_everything
        ),
    ]


def _all_numbers(split: Samples) -> Iterator[range]:
    yield from ranges(len(split), rows_at_once(prod(split.shape), _READ_BATCH))


def _end_numbers(split: Samples) -> Iterator[range]:
    yield range(1)
    yield range(len(split) - 1, len(split))
