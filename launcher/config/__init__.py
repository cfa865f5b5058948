"""Job files and batch files: parses YAML into dataclasses, or reports all of its faults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from vastrun.contract.records import as_json, read_json

if TYPE_CHECKING:
    from vastrun.launcher.config.batch_file import LoadedBatch
    from vastrun.launcher.config.points import ReadFile
    from vastrun.launcher.core.batch import BatchPoint, BatchSpec, Search
    from vastrun.launcher.core.job import JobSpec


def load_job(
    text: str,
    name: str,
    overrides: Iterable[str] = (),
    base_dir: str = ".",
    now: datetime | None = None,
) -> JobSpec:
    """Return the job in a file's text. `overrides` are `key=value`, as given to --set.

    Paths in the job are relative to `base_dir`, the folder of the file. A deadline of 18:00 is the next
    one after `now`, in its zone; None: a deadline needs date and zone. Raises JobFileError with every
    fault.
    """
    from vastrun.launcher.config.job_loader import load  # slow to import: pydantic, yaml

    return load(text, name, overrides, base_dir, now)


def dump_job(spec: JobSpec) -> str:
    """Return the job as JSON, for the ledger."""
    return as_json(spec)


@lru_cache(maxsize=512)
def read_job(text: str) -> JobSpec:
    """Return the job that `dump_job` wrote.

    Cached: a batch reads the jobs of its open runs repeatedly, each call of `pool` those of all held
    machines.
    """
    from vastrun.launcher.core.job import JobSpec  # slow to import: the settings of the trainer

    spec = read_json(JobSpec, text)
    assert isinstance(spec, JobSpec)
    return spec


def load_batch(
    text: str, name: str, read_file: ReadFile, base_dir: str, now: datetime | None = None
) -> LoadedBatch:
    """Return the batch in a file's text, with its points. Raises JobFileError with every fault, UsageError.

    `read_file` returns the text of a file in its folder; paths in it and in the job are relative to
    `base_dir`.
    """
    from vastrun.launcher.config.batch_file import load  # slow to import: pydantic, yaml

    return load(text, name, read_file, base_dir, now)


def points_at(search: Search, values: Iterable[Mapping[str, Any]]) -> list[BatchPoint]:
    """Return the points of these values. Raises JobFileError where they make no valid job."""
    from vastrun.launcher.config.batch_file import points_at as make

    return make(search, values)


def load_sweep(
    spec: BatchSpec,
    job_text: str,
    axes: Iterable[str],
    base_dir: str,
    samples: int,
    now: datetime | None = None,
    sets: Iterable[str] = (),
) -> LoadedBatch:
    """Return the points of `key=a,b` (each value) and `key=low..high` (`samples` values). Raises as above.

    `sets`: values of the job that all points have, as `key=value`.
    """
    from vastrun.launcher.config.batch_file import load_axes

    return load_axes(spec, job_text, axes, base_dir, samples, now, sets)
