"""Sample writer: makes the files of a built-in task that are missing, or were made otherwise.

The samples of a file are solved piece by piece, in one process or several, and written atomically.
"""

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from multiprocessing import get_context
from pathlib import Path
from typing import TextIO

import h5py
import numpy as np

from vastrun.contract.data_cache import DataCache
from vastrun.trainer.data.layouts import Layout
from vastrun.trainer.data.pdebench import Attribute, Fields, attributes

_MIN_WORK_PER_PROCESS_S = 2.0

Piece = Callable[[], Fields]
"""Solves some samples: (some, *shape). It may be pickled to another process."""
ProgressCallback = Callable[[str, int, int], None]
"""Called with a file's name, the number of solved samples, and the number of all."""


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
        path, attrs = plan.path, plan.attrs
        present = attributes(path)
        # A file without a generator is PDEBench's own, and took hours to download: never overwrite it.
        if present is not None and (present == attrs or "generator" not in present):
            lines.append(f"{path.name}: present")
            continue
        fetched = fetch_or_make(path, attrs, partial(write_samples, plan, layout, jobs, on_progress))
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
    part = path.with_name(f".{path.name}.part")
    recipe = json.dumps([path.name, dict(attrs)], sort_keys=True)
    with DataCache(Path(folder)).entry(recipe, path.name) as cached:
        with suppress(OSError):  # no space for a copy: make it instead
            if cached.copy(part):
                part.replace(path)
                return True
        part.unlink(missing_ok=True)
        make()
        cached.keep_copy(path)
    return False


def write_samples(
    plan: FilePlan, layout: Layout, jobs: int | None, on_progress: ProgressCallback | None
) -> None:
    """Write the samples of a file, in order, solved in `jobs` processes. All or nothing.

    Solved pieces are kept in a folder next to the file: a repeated call after a kill continues after them.
    """
    path, attrs, n = plan.path, plan.attrs, plan.samples
    path.parent.mkdir(parents=True, exist_ok=True)
    with _piece_folder(path, attrs) as piece_folder:
        # Another process may have written the file while this one waited for the lock.
        if attributes(path) == attrs:
            return
        solved: list[Path] = []
        samples = 0
        for place in _solve_pieces(piece_folder, plan.pieces, n, jobs):
            solved.append(place)
            samples += len(np.load(place, mmap_mode="r"))
            if on_progress is not None:
                on_progress(path.name, samples, n)
        part = path.with_name(f".{path.name}.part")
        try:
            with h5py.File(part, "w") as file:
                layout.write(file, n, map(np.load, solved))
                file.attrs.update(attrs)
            with part.open("rb") as written:
                os.fsync(written.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


@contextmanager
def _piece_folder(path: Path, attrs: Mapping[str, Attribute]) -> Iterator[Path]:
    """Lock and yield the folder for the pieces of this file.

    Folders of the same file with other attributes are removed.
    """
    digest = hashlib.sha256(json.dumps(attrs, sort_keys=True).encode()).hexdigest()[:12]
    piece_folder = path.with_name(f".{path.name}.{digest}.pieces")
    with folder_lock(path.parent):
        for stale in path.parent.glob(f".{path.name}.*.pieces"):
            if stale != piece_folder:
                shutil.rmtree(stale)
        piece_folder.mkdir(exist_ok=True)
        yield piece_folder
        shutil.rmtree(piece_folder)


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on the folder inside the block."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _solve_pieces(piece_folder: Path, pieces: Iterable[Piece], n: int, jobs: int | None) -> Iterator[Path]:
    """Yield the path of each piece, in order, as soon as it is solved.

    The first piece is timed to choose the number of processes.
    """
    places = ((piece_folder / f"{number:06d}.npy", piece) for number, piece in enumerate(pieces))
    started_at = time.monotonic()
    first = _solve_piece(*next(places))
    took_s = time.monotonic() - started_at
    yield first
    samples = len(np.load(first, mmap_mode="r"))
    work_s = took_s * (n - samples) / samples  # starting a process takes half a second
    jobs = jobs or max(1, min(len(os.sched_getaffinity(0)), 32, int(work_s / _MIN_WORK_PER_PROCESS_S)))
    if jobs == 1:
        yield from (_solve_piece(place, piece) for place, piece in places)
        return
    # Spawned, not forked: a fork of a process with threads would inherit their locks.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        tasks = (pool.submit(_solve_piece, place, piece) for place, piece in places)
        # Not all at once: their initial conditions would fill the memory.
        pending: list[Future[Path]] = list(islice(tasks, 2 * jobs))
        for task in chain(tasks, [None] * len(pending)):
            if task is not None:
                pending.append(task)
            yield pending.pop(0).result()


def _solve_piece(place: Path, piece: Piece) -> Path:
    """Solve the piece into the file `place`, unless it exists."""
    if not place.exists():
        part = place.with_suffix(".part")
        with part.open("wb") as file:
            np.save(file, piece().astype(np.float32))
        part.replace(place)
    return place


def progress_lines(stream: TextIO) -> ProgressCallback:
    """Return a callback that writes a line every 10 s."""
    shown_at = time.monotonic()

    def show(name: str, done: int, of: int) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at >= 10.0:
            shown_at = time.monotonic()
            print(f"{name}: {done} of {of} samples", file=stream, flush=True)

    return show
