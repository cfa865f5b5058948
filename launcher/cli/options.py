"""Arguments and options that several commands share."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import click

from launcher.api import jobs
from launcher.cli.failures import concerns, reads
from launcher.cli.output import say
from launcher.commands.chains import chain_of
from launcher.commands.settings import sound
from launcher.config import load_job, read_job
from launcher.config.tags import tag_fault, tag_faults
from launcher.core import NOTHING, Run
from launcher.core.errors import UsageError, VastrunError
from launcher.core.job import JobSpec
from launcher.core.settings import LoadedSettings, Settings
from launcher.core.verdict import EXIT_DECLINED
from launcher.environment import wire
from launcher.ledger.run_ids import LAST, find_run
from launcher.ports import Provider
from launcher.wiring import DEFAULT_PROVIDER, Wiring


def _complete_run(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Ids from the ledger alone: no network while one types."""
    try:
        runs = (ctx.find_root().obj or wire(os.environ)).ledger().runs()
    except VastrunError:
        return []
    return [name for name in (LAST, *(run.id for run in runs)) if name.startswith(incomplete)]


def _tags(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if fault := tag_fault(value):
            raise click.BadParameter(fault)
    return values


run_argument = click.argument("run_name", metavar="RUN", shell_complete=_complete_run)
maybe_run_argument = click.argument("run_name", metavar="[RUN]", required=False, shell_complete=_complete_run)
job_argument = click.argument("job_file", metavar="JOB.yaml", type=click.Path(path_type=Path))
maybe_job_argument = click.argument(
    "job_file", metavar="[JOB.yaml]", required=False, type=click.Path(path_type=Path)
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


def _plainly(ctx: click.Context, _: click.Parameter, plain: bool) -> None:
    if plain and not ctx.resilient_parsing:
        root = ctx.find_root()
        root.obj = root.obj.plainly()
        ctx.obj = root.obj


plain_option = click.option(
    "--plain",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_plainly,
    help="Plain lines instead of a live view, as with NO_COLOR or CI set, or without a terminal.",
)
set_option = click.option(
    "--set", "sets", metavar="KEY=VALUE", multiple=True, help="Change a value of the job."
)
by_option = click.option(
    "--by", metavar="TIME", help="Finish by then: 18:00, or '2030-11-25 08:00'; as limits.deadline."
)
name_option = click.option("--name", help="Another name for the job.")
tag_option = click.option(
    "--tag", "tags", metavar="TAG", multiple=True, callback=_tags, help="One more tag: see cost --by tag."
)


def _chosen_provider(ctx: click.Context, _: click.Parameter, given: str | None) -> str:
    """What was given, else what the config file says. Raises ConfigFileError."""
    return DEFAULT_PROVIDER if ctx.resilient_parsing else _provider(given, sound(_settings(ctx)))


def _provider_anyway(ctx: click.Context, _: click.Parameter, given: str | None) -> str:
    """The same; the faults of the config file are told, and what is sound in it holds."""
    if ctx.resilient_parsing:
        return DEFAULT_PROVIDER
    loaded = _settings(ctx)
    if loaded.faults:
        say("\n".join(f"note: {fault}" for fault in loaded.faults), err=True)
    return _provider(given, loaded.settings)


def _settings(ctx: click.Context) -> LoadedSettings:
    wiring: Wiring = ctx.find_root().obj
    return wiring.settings()


def _provider(given: str | None, settings: Settings) -> str:
    return given or settings.provider or DEFAULT_PROVIDER


_PROVIDER_HELP = """Where to rent: local is this computer, docker a container on it, vast is Vast.ai,
slurm a job of a cluster, pool a machine that is held [`vastrun config`, else local]."""
provider_option = click.option(
    "--provider", envvar="VASTRUN_PROVIDER", callback=_chosen_provider, help=_PROVIDER_HELP
)
"""Of commands that may spend money: a broken config file ends them."""
provider_anyway_option = click.option(
    "--provider", envvar="VASTRUN_PROVIDER", callback=_provider_anyway, help=_PROVIDER_HELP
)
"""Of all others."""


def example_or(path: Path) -> Path:
    """Return the path, or that of the example of that name where there is no such file."""
    return jobs.example_or(path, lambda text: say(text, err=True))


def read_job_file(path: Path, sets: tuple[str, ...], name: str | None, by: str | None = None) -> JobSpec:
    """Read the job in a file, or in the example of that name. `by`: its deadline instead, as typed.

    Raises JobFileError, and UsageError when the file cannot be read.
    """
    path = example_or(path)
    reads(path)
    return _changed(jobs.text_in(path), str(path), path.resolve().parent, sets, name, by)


def job_of(run: Run, sets: tuple[str, ...], name: str | None, by: str | None) -> JobSpec:
    """Return the job of a run, as it was before any attempt at it, with what is typed changed.

    Raises JobFileError.
    """
    wiring: Wiring = click.get_current_context().obj
    source = jobs.source_of(read_job(chain_of(wiring.ledger(), run)[0].spec_json))
    return _changed(source.text, f"the job of {run.id}", source.folder, sets, name, by)


def _changed(
    text: str, source: str, folder: Path, sets: tuple[str, ...], name: str | None, by: str | None
) -> JobSpec:
    overrides = [*sets, *([f"name={name}"] if name else []), *([f"limits.deadline='{by}'"] if by else [])]
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
    from launcher.commands.answering import answered

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


def the_run(wiring: Wiring, name: str) -> Run:
    """Return the run that the user means."""
    run = find_run(wiring.ledger(), name)
    concerns(run)
    return run


def confirm(question: str, *, yes: bool) -> None:
    """Ask, and return when the user agrees. Without a terminal, or with --no-input, only --yes does."""
    if yes:
        return
    ctx = click.get_current_context()
    if ctx.find_root().params["no_input"] or not sys.stdin.isatty():
        raise UsageError(f"{question}: needs confirmation, but there is no terminal to ask at", hint="add -y")
    click.echo(f"{question} [y/N] ", err=True, nl=False)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        say("nothing was done", err=True)
        ctx.exit(EXIT_DECLINED)
