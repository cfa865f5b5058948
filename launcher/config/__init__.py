"""Job files and batch files: parses YAML into dataclasses, or reports all of its faults.

Modules that parse are imported where they are called: pydantic and yaml are slow to import.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from vastrun.contract.records import as_json, parse_json, read_as

if TYPE_CHECKING:
    from vastrun.contract.program_kind import Program
    from vastrun.launcher.core.job import JobSpec


def dump_job(spec: JobSpec) -> str:
    """Return the job as JSON, for the ledger."""
    return as_json(spec)


def program_of(spec: JobSpec) -> Program[Any]:
    """Return the program of a job; that of a held machine does nothing."""
    from vastrun.contract.program_kind import NO_PROGRAM
    from vastrun.launcher.config.program_kinds import programs_of

    return next(iter(programs_of(spec)), NO_PROGRAM)


@lru_cache(maxsize=512)
def read_job(text: str) -> JobSpec:
    """Return the job that `dump_job` wrote.

    Cached: a batch reads the jobs of its open runs repeatedly, each call of `pool` those of all held
    machines.
    """
    from vastrun.launcher.config.program_kinds import job_type, kind_of
    from vastrun.launcher.core.errors import UsageError
    from vastrun.launcher.core.job import JobSpec

    job = parse_json(text)
    # Of earlier versions, whose runs are still shown.
    given, kinds = job if isinstance(job, dict) else {}, list[str]()
    for key, section in given.items():
        with suppress(UsageError):  # a package that does not load hides only its own section
            if isinstance(section, dict) and (kind := kind_of(key)) is not None:
                given[key] = kind.upgrade(section)
                kinds.append(key)
    if isinstance(retry := given.get("retry"), dict):
        retry.pop("slow", None)
    spec = read_as(job_type(kinds), job)
    assert isinstance(spec, JobSpec)
    return spec
