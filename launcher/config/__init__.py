"""Job files and batch files: parses YAML into dataclasses, or reports all of its faults.

Modules that parse are imported where they are called: pydantic and yaml are slow to import.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from vastrun.contract.records import as_json, parse_json, read_as

if TYPE_CHECKING:
    from vastrun.launcher.core.job import JobSpec


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

    job = parse_json(text)
    # Of earlier versions, whose runs are still shown.
    if isinstance(job, dict):
        train, retry = job.get("train"), job.get("retry")
        if isinstance(train, dict) and train.get("strategy") == "diloco":
            train["strategy"] = "ddp"
        if isinstance(retry, dict):
            retry.pop("slow", None)
    spec = read_as(JobSpec, job)
    assert isinstance(spec, JobSpec)
    return spec
