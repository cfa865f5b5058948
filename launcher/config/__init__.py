"""The job file: YAML becomes a JobSpec, or a list of all its faults."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime

from launcher.core.job import JobSpec
from trainer.contract.records import read_json


def load_job(
    text: str,
    name: str,
    overrides: Iterable[str] = (),
    base_dir: str = ".",
    now: datetime | None = None,
) -> JobSpec:
    """The job in a file's text. `overrides` are `key=value`, as given to --set.

    Paths in the job are anchored at `base_dir`, the folder of the file. A deadline of 18:00 is the next one
    after `now`, in its zone; None: a deadline needs date and zone. Raises JobFileError with every fault.
    """
    from launcher.config.loading import load  # slow to import: pydantic, yaml

    return load(text, name, overrides, base_dir, now)


def dump_job(spec: JobSpec) -> str:
    """The job as JSON, for the ledger."""
    return json.dumps(asdict(spec))


def read_job(text: str) -> JobSpec:
    """The job that `dump_job` wrote."""
    spec = read_json(JobSpec, text)
    assert isinstance(spec, JobSpec)
    return spec
