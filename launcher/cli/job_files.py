"""Job files as several commands read them: by a path, an example's name, or from a former run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from vastrun.launcher.api import jobs
from vastrun.launcher.cli.failures import reads
from vastrun.launcher.cli.output import say
from vastrun.launcher.commands.chains import chain_of
from vastrun.launcher.config import load_job, read_job
from vastrun.launcher.config.tags import tag_faults
from vastrun.launcher.core import NOTHING, Offer, Run
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.ports import Provider
from vastrun.launcher.wiring import DEFAULT_PROVIDER, Wiring


def example_or(path: Path) -> Path:
    """Return the path, or that of the example of that name where there is no such file."""
    return jobs.example_or(path, lambda text: say(text, err=True))


def read_job_file(path: Path, sets: tuple[str, ...], by: str | None = None) -> JobSpec:
    """Read the job in a file, or in the example of that name. `by`: its deadline instead, as typed.

    Raises JobFileError, and UsageError when the file cannot be read.
    """
    typed, path = path, example_or(path)
    reads(path)
    spec = _changed(jobs.text_in(path), str(path), path.resolve().parent, sets, by)
    return replace(spec, job_file=str(typed))


def job_of(run: Run, sets: tuple[str, ...], by: str | None) -> JobSpec:
    """Return the job of a run, as it was before any attempt at it, with what is typed changed.

    Raises JobFileError.
    """
    wiring: Wiring = click.get_current_context().obj
    first = read_job(chain_of(wiring.ledger(), run)[0].spec_json)
    source = jobs.source_of(first)
    spec = _changed(source.text, f"the job of {run.id}", source.folder, sets, by)
    return replace(spec, job_file=first.job_file)


def _changed(text: str, source: str, folder: Path, sets: tuple[str, ...], by: str | None) -> JobSpec:
    overrides = [*sets, *([f"limits.deadline='{by}'"] if by else [])]
    wiring: Wiring = click.get_current_context().obj
    return load_job(text, source, overrides, str(folder), wiring.local_now())


def with_tags(spec: JobSpec, tags: tuple[str, ...]) -> JobSpec:
    """Return the job with these tags besides its own. Raises click's own error when they are too many."""
    together = tuple(dict.fromkeys((*spec.tags, *tags)))
    for _, fault in tag_faults(together):
        raise click.BadParameter(fault, param_hint="--tag")
    return replace(spec, tags=together)


def without_auto(wiring: Wiring, spec: JobSpec, market: Provider, parent: Run | None = None) -> JobSpec:
    """Return the job with what it leaves to `auto` as numbers, and say them. Raises JobValueError."""
    if not spec.auto_keys:
        return spec
    from vastrun.launcher.commands.resolve_auto import answered

    found = answered(spec, wiring.foreteller(), market, parent)
    say(found.told, err=True)
    return found.spec


def must_ship(wiring: Wiring, spec: JobSpec, job_file: Path | None) -> None:
    """Check what the job ships from this computer, before anything is asked for. Raises UsageError.

    `job_file`: None: the job is one of a former run.
    """
    jobs.must_ship(
        wiring.packer(NOTHING),
        spec,
        None if job_file is None else job_file.resolve().parent,
        lambda: say(f"{job_file or 'the job'} has no code: nothing is shipped besides the command", err=True),
    )


def warn(spec: JobSpec, market: Provider, offers: Sequence[Offer]) -> None:
    """Print what about a job is valid and probably not meant so."""
    from vastrun.launcher.commands.job_warnings import job_warnings

    for text in job_warnings(
        spec, offers, free=market.free, local=market.name == DEFAULT_PROVIDER, provider=market.name
    ):
        say(f"warning: {text}", err=True)
