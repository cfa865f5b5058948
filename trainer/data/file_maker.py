"""File maker: makes the files of a built-in task that are missing, or were made otherwise."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vastrun.contract.data_cache import DataCache
from vastrun.trainer.data import pdebench, sample_writer
from vastrun.trainer.data.layouts import Layout
from vastrun.trainer.data.pdebench import Attribute
from vastrun.trainer.data.sample_writer import Piece, ProgressCallback


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
