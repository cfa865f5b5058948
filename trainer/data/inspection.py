"""Inspection: checks the files of a task, and describes the files of a folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path

import h5py

from vastrun.contract.data_config import PARAMETERS, DataConfig
from vastrun.contract.errors import DataError
from vastrun.trainer import data
from vastrun.trainer.data.chunks import ranges, rows_at_once
from vastrun.trainer.data.conditions import find_seen
from vastrun.trainer.data.pdebench import attributes, open_file
from vastrun.trainer.data.samples import Samples, Splits

_SUFFIXES = (".hdf5", ".h5")
_READ_BATCH = 64


def check(config: DataConfig, folder: Path, *, quick: bool = False) -> list[str]:
    """Read every sample of the task.

    Returns lines for the user, with a warning when conditions of the test set are in the training set. Raises
    DataError. When `quick`, only the layout of each file, the first and last sample of each split, and the
    conditions are read.
    """
    splits, unseen = data.splits(config, folder), data.unseen(config, folder)
    for split in (*splits.all, *(() if unseen is None else (unseen,))):
        for numbers in _end_numbers(split) if quick else _all_numbers(split):
            split.read(numbers)
    kind = "steady problems" if splits.train.steady else "trajectories"
    return [
        f"{config.task}: {len(splits.train)} {kind} to train on, {len(splits.test)} to test on",
        *([] if unseen is None else [f"  {len(unseen)} to test on at parameters that are not trained"]),
        *(f"  {path.name}: {attrs}" for path, attrs in stride_descriptions(splits).items()),
        *(f"  warning: {line}" for line in find_seen(splits).lines),
    ]


def stride_descriptions(splits: Splits) -> dict[Path, str]:
    """Describe, by file, which points and frames are read, where that is not all of them."""
    return {
        path: f"{stride} are read"
        for path, stride in splits.train.strides.items()
        if not stride.is_everything
    }


def _all_numbers(split: Samples) -> Iterator[range]:
    yield from ranges(len(split), rows_at_once(prod(split.shape), _READ_BATCH))


def _end_numbers(split: Samples) -> Iterator[range]:
    yield range(1)
    yield range(len(split) - 1, len(split))


def info(folder: Path, configs: Sequence[DataConfig] = ()) -> list[str]:
    """Describe each HDF5 file of the folder: its arrays and how it was made.

    For the files of `configs`, also which points and frames are read. Raises DataError.
    """
    files = sorted(
        path for path in folder.iterdir() if path.suffix in _SUFFIXES and not path.name.startswith(".")
    )
    if not files:
        raise DataError(f"{folder}: no HDF5 file; `python -m vastrun.trainer.data generate` makes them")
    read: dict[Path, str] = {}
    for config in configs:
        if config.task in PARAMETERS:
            read |= stride_descriptions(data.splits(config, folder))
    return [line for path in files for line in _describe_file(path, read.get(path))]


def _describe_file(path: Path, read: str | None) -> list[str]:
    attrs = attributes(path) or {}
    made = ", ".join(f"{name} {value}" for name, value in attrs.items())
    with open_file(path) as file:
        return [
            f"{path.name}: {path.stat().st_size / 1e6:.1f} MB",
            *_describe_arrays(file),
            f"  {made or 'no record of how it was made'}",
            *([f"  {read}"] if read else []),
        ]


def _describe_arrays(file: h5py.File) -> list[str]:
    """Describe each array in a line; for groups, the arrays of the first one."""
    groups = [name for name, item in file.items() if isinstance(item, h5py.Group)]
    lines = [f"  {name} {item.shape} {item.dtype}" for name, item in file.items() if name not in groups]
    if groups:
        lines.append(f"  {len(groups)} groups like `{groups[0]}`:")
        file[groups[0]].visititems(
            lambda name, item: (
                lines.append(f"    {name} {item.shape} {item.dtype}")
                if isinstance(item, h5py.Dataset)
                else None
            )
        )
    return lines
