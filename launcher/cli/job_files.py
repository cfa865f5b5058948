"""Jobs of commands: read from a file, from an example's name or from an earlier run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from vastrun.launcher.api import jobs
from vastrun.launcher.app_context import DEFAULT_PROVIDER, AppContext
from vastrun.launcher.cli.failures import set_error_job_file
from vastrun.launcher.cli.output import note, say
from vastrun.launcher.commands.chains import chain_of
from vastrun.launcher.config import load_job, read_job
from vastrun.launcher.config.tags import tag_faults
from vastrun.launcher.core import Offer, Run
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.ports import Provider


def read_job_file(path: Path, sets: tuple[str, ...], by: str | None = None) -> JobSpec:
    """Read the job in a file, or in the example of that name. `by`: the deadline that overrides its own.

    Raises JobFileError, and UsageError if the file cannot be read.
    """
    typed, path = path, jobs.file_or_example(path, note)
    set_error_job_file(path)
    spec = _load(jobs.read_source(path), str(path), path.resolve().parent, sets, by)
    return replace(spec, job_file=str(typed))


def job_of(run: Run, sets: tuple[str, ...], by: str | None) -> JobSpec:
    """Return the job of a run as it was before its first attempt, with the overrides applied.

    Raises JobFileError.
    """
    app: AppContext = click.get_current_context().obj
    first = read_job(chain_of(app.ledger(), run)[0].spec_json)
    source = jobs.source_of(first)
    spec = _load(source.text, f"the job of {run.id}", source.folder, sets, by)
    return replace(spec, job_file=first.job_file)


def _load(text: str, source: str, folder: Path, sets: tuple[str, ...], by: str | None) -> JobSpec:
    overrides = [*sets, *([f"limits.deadline='{by}'"] if by else [])]
    app: AppContext = click.get_current_context().obj
    return load_job(text, source, overrides, str(folder), app.local_now())


def with_tags(spec: JobSpec, tags: tuple[str, ...]) -> JobSpec:
    """Return the job with further tags. Raises click.BadParameter if there are too many."""
    all_tags = tuple(dict.fromkeys((*spec.tags, *tags)))
    for _, fault in tag_faults(all_tags):
        raise click.BadParameter(fault, param_hint="--tag")
    return replace(spec, tags=all_tags)


def resolve_auto(app: AppContext, spec: JobSpec, market: Provider, parent: Run | None = None) -> JobSpec:
    """Return the job with numbers in place of `auto`, and print them. Raises JobValueError."""
    if not spec.auto_keys:
        return spec
    from vastrun.launcher.commands import estimate as auto

    found = auto.resolve_auto(spec, app.make.estimator(), market, parent)
    note(found.message)
    return found.spec


def print_warnings(spec: JobSpec, market: Provider, offers: Sequence[Offer]) -> None:
    """Print warnings about valid values of the job that are probably mistakes."""
    from vastrun.launcher.commands.job_warnings import job_warnings

    for text in job_warnings(
        spec, offers, free=market.free, local=market.name == DEFAULT_PROVIDER, provider=market.name
    ):
        say(f"warning: {text}", err=True)
