"""Inspection: are the files of a task what they should be, and what are the files of a folder?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import h5py

from vastrun.contract.config import PARAMETERS, DataConfig
from vastrun.contract.errors import DataError
from vastrun.trainer import data
from vastrun.trainer.data import manifest
from vastrun.trainer.data.pdebench import attributes, opened
from vastrun.trainer.data.samples import Samples, Splits
from vastrun.trainer.data.stride import Stride

_SUFFIXES = (".hdf5", ".h5")
_READ_AT_ONCE = 64


def check(config: DataConfig, folder: Path, *, quick: bool = False) -> list[str]:
    """Read every sample of the task and compare every file with how it was made.

    Yields lines. Raises DataError.

    When `quick`: all files have their layout, and of each split the first sample and the last were read.
    """
    splits = data.splits(config, folder)
    for split in splits.all:
        for numbers in _ends_of(split) if quick else _all_of(split):
            split.read(numbers)
    for path in () if quick else splits.train.strides:
        # Only what was made here has a sum to be compared with; PDEBench's own files have none.
        ours = "generator" in (attributes(path) or {})
        if ours and manifest.expected_of(path) not in (None, manifest.sum_of(path)):
            raise DataError(
                f"{path}: expected what {manifest.NAME} lists; the file was changed since it was made"
            )
    kind = "steady problems" if splits.train.steady else "trajectories"
    return [
        f"{config.task}: {len(splits.train)} {kind} to train on, {len(splits.test)} to test on",
        *(f"  {path.name}: {told}" for path, told in thinned(splits).items()),
    ]


def thinned(splits: Splits) -> dict[Path, str]:
    """Name the files that hold more than is read of them, and how much is."""
    return {path: f"{stride} are read" for path, stride in splits.train.strides.items() if stride != Stride()}


def _all_of(split: Samples) -> Iterator[range]:
    for first in range(0, len(split), _READ_AT_ONCE):
        yield range(first, min(first + _READ_AT_ONCE, len(split)))


def _ends_of(split: Samples) -> Iterator[range]:
    yield range(1)
    yield range(len(split) - 1, len(split))


def info(folder: Path, configs: Sequence[DataConfig] = ()) -> list[str]:
    """Describe each HDF5 file of the folder: what it holds, and what it says of how it was made.

    Of the files that `configs` ask for, also what is read of them. Raises DataError.
    """
    files = sorted(
        path for path in folder.iterdir() if path.suffix in _SUFFIXES and not path.name.startswith(".")
    )
    if not files:
        raise DataError(f"{folder}: no HDF5 file; `python -m vastrun.trainer.data generate` makes them")
    read: dict[Path, str] = {}
    for config in configs:
        if config.task in PARAMETERS:
            read |= thinned(data.splits(config, folder))
    return [line for path in files for line in _info_of(path, read.get(path))]


def _info_of(path: Path, read: str | None) -> list[str]:
    told = attributes(path) or {}
    made = ", ".join(f"{name} {value}" for name, value in told.items())
    with opened(path) as file:
        return [
            f"{path.name}: {path.stat().st_size / 1e6:.1f} MB",
            *_arrays(file),
            f"  {made or 'says nothing of how it was made'}",
            *([f"  {read}"] if read else []),
        ]


def _arrays(file: h5py.File) -> list[str]:
    """Describe each array in a line; of groups that are alike, those of the first."""
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
