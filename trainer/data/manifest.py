"""Manifest of a data folder: the checksum of every file made there, and how it was made."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from math import prod
from pathlib import Path

import h5py

from vastrun.contract.records import write_json
from vastrun.trainer.data.chunks import ranges, rows_at_once
from vastrun.trainer.data.pdebench import Attribute, open_file
from vastrun.trainer.data.sample_writer import folder_lock

NAME = "manifest.json"
_ROWS = 64


def add(path: Path, attrs: Mapping[str, Attribute]) -> None:
    """Add the file as it is now to the manifest of its folder."""
    place = path.parent / NAME
    entry = {"arrays_sha256": checksum(path), "attributes": dict(attrs)}
    with folder_lock(path.parent):
        files = json.loads(place.read_text(encoding="utf-8"))["files"] if place.exists() else {}
        write_json(place, {"files": dict(sorted({**files, path.name: entry}.items()))})


def expected_sum(path: Path) -> str | None:
    """Return the checksum that the file had when it was made; None when it is not listed."""
    place = path.parent / NAME
    if not place.exists():
        return None
    entry = json.loads(place.read_text(encoding="utf-8"))["files"].get(path.name)
    return None if entry is None else str(entry["arrays_sha256"])


def checksum(path: Path) -> str:
    """Hash the names, shapes and values of all arrays, independent of the version of HDF5."""
    total = hashlib.sha256()

    def add_array(name: str, item: h5py.HLObject) -> None:
        if isinstance(item, h5py.Dataset):
            total.update(f"{name} {item.dtype.str} {item.shape}\n".encode())
            for rows in ranges(len(item), rows_at_once(prod(item.shape[1:]), _ROWS)):
                total.update(item[rows.start : rows.stop].tobytes())

    with open_file(path) as file:
        file.visititems(add_array)
    return total.hexdigest()
