"""Making: a file of samples, solved piece by piece on one core or many, there only when it is whole."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from itertools import chain, islice
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType
from typing import TextIO

import h5py
import numpy as np

from vastrun.trainer.data.layouts import Layout
from vastrun.trainer.data.pdebench import Attribute, Fields, attributes

_WORTH_A_PROCESS_S = 2.0
_MOST_PROCESSES = 32

Piece = Callable[[], Fields]
"""Solves some samples: (some, *shape). Another process may be sent it."""
Watch = Callable[[str, int, int], None]
"""Told of a file's name, how many of its samples are solved, and how many there will be."""


def make(
    path: Path,
    pieces: Iterable[Piece],
    *,
    layout: Layout,
    n: int,
    attrs: Mapping[str, Attribute],
    jobs: int | None,
    watch: Watch | None,
) -> None:
    """Write to `path` the `n` samples that `pieces` solve, in order, in so many processes. All or nothing.

    Solved pieces wait in a folder beside it: who makes the file again after a kill goes on behind them.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _workshop(path, attrs) as workshop:
        # Another process may have made it while this one waited for the workshop.
        if attributes(path) == attrs:
            return
        solved: list[Path] = []
        samples = 0
        for place in _solved(workshop, pieces, n, jobs):
            solved.append(place)
            samples += len(np.load(place, mmap_mode="r"))
            if watch is not None:
                watch(path.name, samples, n)
        _assemble(path, map(np.load, solved), layout, n, attrs)


@contextmanager
def _workshop(path: Path, attrs: Mapping[str, Attribute]) -> Iterator[Path]:
    """Give the folder for the pieces of this very file to one process at a time.

    Those of others are removed.
    """
    digest = hashlib.sha256(json.dumps(attrs, sort_keys=True).encode()).hexdigest()[:12]
    workshop = path.with_name(f".{path.name}.{digest}.pieces")
    with locked(path.parent):
        for stale in path.parent.glob(f".{path.name}.*.pieces"):
            if stale != workshop:
                shutil.rmtree(stale)
        workshop.mkdir(exist_ok=True)
        yield workshop
        shutil.rmtree(workshop)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes that ask for it out."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _solved(workshop: Path, pieces: Iterable[Piece], n: int, jobs: int | None) -> Iterator[Path]:
    """Yield where each piece lies, in order, as soon as it is solved.

    The first tells how long the others take.
    """
    places = ((workshop / f"{number:06d}.npy", piece) for number, piece in enumerate(pieces))
    began = time.monotonic()
    first = _keep(*next(places))
    took_s = time.monotonic() - began
    yield first
    samples = len(np.load(first, mmap_mode="r"))
    jobs = jobs or _worthwhile(took_s * (n - samples) / samples)
    if jobs == 1:
        yield from (_keep(place, piece) for place, piece in places)
        return
    # Each process has a core of its own; a fork of a process with threads would inherit their locks.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        tasks = (pool.submit(_keep, place, piece) for place, piece in places)
        # Not all at once: what they begin from would fill the memory.
        coming: list[Future[Path]] = list(islice(tasks, 2 * jobs))
        for task in chain(tasks, [None] * len(coming)):
            if task is not None:
                coming.append(task)
            yield coming.pop(0).result()


def _worthwhile(work_s: float) -> int:
    """Return how many processes have enough to do to be started, which takes half a second."""
    return max(1, min(len(os.sched_getaffinity(0)), _MOST_PROCESSES, int(work_s / _WORTH_A_PROCESS_S)))


def _keep(place: Path, piece: Piece) -> Path:
    """Solve the piece into `place`, unless it is there already."""
    if not place.exists():
        part = place.with_suffix(".part")
        with part.open("wb") as file:
            np.save(file, piece().astype(np.float32))
        part.replace(place)
    return place


def _assemble(
    path: Path, pieces: Iterable[Fields], layout: Layout, n: int, attrs: Mapping[str, Attribute]
) -> None:
    part = path.with_name(f".{path.name}.part")
    try:
        with h5py.File(part, "w") as file:
            layout.write(file, n, pieces)
            file.attrs.update(attrs)
        with part.open("rb") as written:
            os.fsync(written.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


_WIDTH = 30
_TERMINAL_S, _LOG_S = 0.1, 10.0


class ProgressBar:
    """How far a file is. One that is quickly made says nothing in a log."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._every_s = _TERMINAL_S if self._terminal else _LOG_S
        self._told_at = time.monotonic()
        self._shown = False

    def show(self, name: str, done: int, of: int) -> None:
        """Show that so many samples of the file are solved."""
        now = time.monotonic()
        if now - self._told_at < self._every_s and not (self._shown and done == of):
            return
        self._told_at = now
        if not self._terminal:
            print(f"{name}: {done} of {of} samples", file=self._stream, flush=True)
            return
        filled = _WIDTH * done // of
        bar = "█" * filled + "░" * (_WIDTH - filled)
        self._stream.write(f"\r\x1b[K{bar} {100 * done // of:3d} % {name}")
        self._stream.flush()
        self._shown = True

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave nothing of the bar on the terminal."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
