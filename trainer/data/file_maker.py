"""File maker: makes the files of a built-in task that are missing, or were made otherwise."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vastrun.contract.errors import DataError
from vastrun.trainer.data import pdebench, sample_writer
from vastrun.trainer.data.layouts import Layout
from vastrun.trainer.data.pdebench import Attribute, attributes
from vastrun.trainer.data.sample_writer import Piece, ProgressCallback

_CHUNK = 1 << 20
_MIN_FREE_FACTOR = 4
"""A file is stored only when this multiple of its size is free: other runs need space, too."""


@dataclass(frozen=True, kw_only=True)
class FilePlan:
    """File that a job needs, and how it is made."""

    path: Path
    attrs: Mapping[str, Attribute]
    """Everything that the values depend on."""
    samples: int
    pieces: Iterator[Piece]


def make_files(
    plans: Iterable[FilePlan], layout: Layout, *, jobs: int | None, on_progress: ProgressCallback | None
) -> list[str]:
    """Make each file, unless it matches its plan or is PDEBench's own. Return a line for each."""
    lines = []
    for plan in plans:
        path, attrs = plan.path, dict(plan.attrs)
        present = pdebench.attributes(path)
        # A file without a generator is PDEBench's own, and took hours to download: never overwrite it.
        if present is not None and (present == attrs or "generator" not in present):
            lines.append(f"{path.name}: present")
            continue
        make = partial(
            sample_writer.write_samples,
            path,
            plan.pieces,
            layout=layout,
            n=plan.samples,
            attrs=attrs,
            jobs=jobs,
            on_progress=on_progress,
        )
        fetched = fetch_or_make(path, attrs, make)
        how = "made before on this machine" if fetched else "made"
        lines.append(f"{path.name}: {_describe(layout, plan.samples)} {how}")
    return lines


def _describe(layout: Layout, samples: int) -> str:
    across = " x ".join(str(points) for points in layout.shape[1 if layout.steady else 2 :])
    if layout.steady:
        return f"{samples} steady problems of {across} points"
    return f"{samples} trajectories of {layout.shape[0]} frames and {across} points"


def fetch_or_make(path: Path, attrs: Mapping[str, Attribute], make: Callable[[], None]) -> bool:
    """Copy `path` from the cache, or make it and store it there. Returns True when it came from the cache.

    Raises the errors of `make`.
    """
    folder = os.environ.get("VASTRUN_SHARED_DATA", "")
    if not folder:
        make()
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    shared = SharedFile(Path(folder), path.name, attrs)
    with shared.lock():
        if shared.fetch(path):
            return True
        make()
        shared.store(path)
    return False


class SharedFile:
    """Place of one file in the shared cache."""

    def __init__(self, folder: Path, name: str, attrs: Mapping[str, Attribute]) -> None:
        """`attrs`: how the file is made; other attributes are another file."""
        recipe = json.dumps([name, dict(attrs)], sort_keys=True)
        self._place = folder / hashlib.sha256(recipe.encode()).hexdigest()
        self._sum = self._place.with_suffix(".sha256")
        self._attrs = attrs

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from making the same file; one that waited may fetch it."""
        self._place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(self._place.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def fetch(self, path: Path) -> bool:
        """Copy the file to `path`; False when it is missing. A file with a wrong checksum is removed."""
        part = path.with_name(f".{path.name}.part")
        try:
            expected = self._sum.read_text(encoding="ascii").strip()
            if _copy_and_hash(self._place, part) == expected and attributes(part) == dict(self._attrs):
                part.replace(path)
                return True
        except FileNotFoundError:
            return False
        except (OSError, ValueError, DataError):  # unreadable, or no space for the copy: make it instead
            pass
        finally:
            part.unlink(missing_ok=True)
        self._remove()
        return False

    def store(self, path: Path) -> None:
        """Store a copy of `path` for other runs, if there is space; a failure is ignored."""
        part = self._place.with_suffix(f".{os.getpid()}.part")
        with suppress(OSError):
            if shutil.disk_usage(self._place.parent).free < _MIN_FREE_FACTOR * path.stat().st_size:
                return
            total = _copy_and_hash(path, part)
            part.chmod(0o400)
            part.replace(self._place)
            # Last: a file without a checksum does not count.
            part.write_text(f"{total}\n", encoding="ascii")
            part.replace(self._sum)
        part.unlink(missing_ok=True)

    def _remove(self) -> None:
        for path in (self._sum, self._place):
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _copy_and_hash(source: Path, target: Path) -> str:
    """Copy the file and return the SHA-256 of the bytes that were written."""
    total = hashlib.sha256()
    with source.open("rb") as reader, target.open("wb") as writer:
        while chunk := reader.read(_CHUNK):
            total.update(chunk)
            writer.write(chunk)
    return total.hexdigest()
