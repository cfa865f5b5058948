"""HDF5 checks: bounds of files that others wrote, before any of their values is read."""

from collections.abc import Iterable, Sequence
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from vastrun.trainer.errors import DataError

MAX_CHUNK_BYTES = 1 << 28
"""Largest chunk, unpacked: HDF5 unpacks whole chunks, and a small file can name a huge one."""
MAX_COORDINATES = 1 << 20
"""Largest number of values of a coordinate."""
MAX_GROUPS = 1 << 17
"""Largest number of samples that have a group each; PDEBench's largest file has 10,000."""


def expect_samples(path: Path, found: int, min_samples: int) -> None:
    """Raise DataError when a file has too few samples."""
    if found < min_samples:
        raise DataError(f"{path}: expected at least {min_samples} samples, got {found}")


def expect_axes(path: Path, array: h5py.Dataset, axes: str) -> tuple[int, ...]:
    """Return the shape; `axes` gives the name or the required length of each axis. Raises DataError."""
    names, shape = axes.split(", "), array.shape
    fits = len(names) == len(shape) and all(
        not name.isdecimal() or int(name) == size for name, size in zip(names, shape, strict=True)
    )
    if not fits:
        raise DataError(f"{path}: expected `{array.name.lstrip('/')}` of shape ({axes}), got {shape}")
    return tuple(shape)


def expect_lengths(
    path: Path, array: h5py.Dataset, coordinates: Sequence[tuple[int, str, h5py.Dataset]]
) -> None:
    """Raise DataError unless the axes of `array` are as long as their coordinates: (axis, name, coordinate).

    The coordinate of time may have one value more, as in PDEBench's files.
    """
    shape = array.shape
    for axis, name, coordinate in coordinates:
        lengths = (shape[axis], shape[axis] + 1) if name.endswith(("t", "t-coordinate")) else (shape[axis],)
        if len(coordinate) not in lengths:
            raise DataError(
                f"{path}: expected axis {axis} of `{array.name.lstrip('/')}` {shape} to be as long as "
                f"`{name}`, which has {len(coordinate)} values: are the axes in another order?"
            )


def expect_datasets(path: Path, group: h5py.Group, names: Iterable[str]) -> None:
    """Raise DataError unless the group has these arrays of numbers, stored in this file in a readable way."""
    for name in names:
        expect_local(path, group, name)
        item = group.get(name)
        if not isinstance(item, h5py.Dataset):
            where = "" if group.name == "/" else f" in `{group.name}`"
            found = ", ".join(sorted(group)[:8])
            raise DataError(f"{path}: expected a dataset `{name}`{where}, found: {found or 'none'}")
        if item.file.filename != group.file.filename:  # by a link to a link
            raise DataError(f"{path}: expected `{name}` in this file, but it links to another one")
        _check_storage(path, item)


def expect_local(path: Path, group: h5py.Group, name: str) -> None:
    """Raise DataError when a part of the path `name` links to another file."""
    links, parts = group.id.links, name.split("/")
    for count in range(1, len(parts) + 1):
        part = "/".join(parts[:count]).encode()
        try:
            if not links.exists(part):
                return
            kind = links.get_info(part).type
        except (KeyError, RuntimeError, ValueError):  # a part before it is no group: there is no such array
            return
        if kind not in (h5py.h5l.TYPE_HARD, h5py.h5l.TYPE_SOFT):
            raise DataError(f"{path}: expected `{name}` in this file, but it links to another one")


def read_coordinate(path: Path, array: h5py.Dataset) -> NDArray[np.float64]:
    """Return all values of a coordinate. Raises DataError when there are too many or it is damaged."""
    if array.ndim != 1 or array.size > MAX_COORDINATES:
        raise DataError(
            f"{path}: expected `{array.name.lstrip('/')}` to be a list of at most {MAX_COORDINATES} values, "
            f"got shape {array.shape}"
        )
    return np.asarray(read(array, slice(None)), np.float64)


def read(array: Any, chosen: Any) -> NDArray:
    """Return `array[chosen]`. Raises DataError when a chunk is damaged or cut off."""
    try:
        values: NDArray = array[chosen]
    except (OSError, RuntimeError) as error:
        raise DataError(
            f"{array.file.filename}: cannot read `{array.name.lstrip('/')}`: {error}; "
            "the file is damaged or incomplete: download it again"
        ) from error
    return values


def _check_storage(path: Path, array: h5py.Dataset) -> None:
    name = array.name.lstrip("/")
    if array.dtype.kind != "f" or array.dtype.itemsize > np.dtype(np.float64).itemsize:
        raise DataError(f"{path}: expected real numbers in `{name}`, got {array.dtype}")
    if array.external or array.is_virtual:
        raise DataError(f"{path}: expected the values of `{name}` in this file, they are in another one")
    if array.chunks and prod(array.chunks) * array.dtype.itemsize > MAX_CHUNK_BYTES:
        raise DataError(
            f"{path}: expected chunks of at most {MAX_CHUNK_BYTES >> 20} MiB in `{name}`, got {array.chunks}"
        )
    plist = array.id.get_create_plist()
    for number in range(plist.get_nfilters()):
        code, _, _, label = plist.get_filter(number)
        if not h5py.h5z.filter_avail(code):
            shown = label.decode(errors="replace") or "unnamed"
            raise DataError(
                f"{path}: `{name}` is packed with the HDF5 filter {code} ({shown[:40]}), which is not "
                "installed here: repack the file, h5repack -f GZIP=1"
            )
