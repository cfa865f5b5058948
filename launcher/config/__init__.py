"""The job file: YAML becomes a JobSpec, or a list of all its faults."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict

from launcher.core.job import JobSpec
from trainer.contract.records import read_json


def load_job(text: str, name: str, overrides: Iterable[str] = (), base_dir: str = ".") -> JobSpec:
    """Return the job in a file's text. `overrides` are `key=value`, as given to --set.

    Paths in the job are anchored at `base_dir`, the folder of the file. Raises JobFileError with every fault.
    """
    from launcher.config.loading import load  # slow to import: pydantic, yaml

    return load(text, name, overrides, base_dir)


def dump_job(spec: JobSpec) -> str:
    """Return the job as JSON, for the ledger."""
    return json.dumps(asdict(spec))


def read_job(text: str) -> JobSpec:
    """Return the job that `dump_job` wrote."""
    spec = read_json(JobSpec, text)
    assert isinstance(spec, JobSpec)
    return spec
