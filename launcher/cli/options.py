"""Arguments and options that several commands share."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from pathlib import Path

import click

from launcher.cli.failures import concerns, reads
from launcher.cli.output import say
from launcher.cli.values import LocalZone
from launcher.config import load_job
from launcher.config.shell import script_of
from launcher.core import NOTHING, Run
from launcher.core.errors import JobValueError, UsageError, VastrunError
from launcher.core.job import JobSpec
from launcher.core.verdict import EXIT_DECLINED
from launcher.ledger.run_ids import LAST, find_run
from launcher.shipped import configs_dir
from launcher.wiring import DEFAULT_PROVIDER, Wiring, wire


def _complete_run(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Ids from the ledger alone: no network while one types."""
    try:
        runs = (ctx.find_root().obj or wire(os.environ)).ledger().runs()
    except VastrunError:
        return []
    return [name for name in (LAST, *(run.id for run in runs)) if name.startswith(incomplete)]


run_argument = click.argument("run_name", metavar="RUN", shell_complete=_complete_run)
maybe_run_argument = click.argument("run_name", metavar="[RUN]", required=False, shell_complete=_complete_run)
job_argument = click.argument("job_file", metavar="JOB.yaml", type=click.Path(path_type=Path))
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


set_option = click.option(
    "--set", "sets", metavar="KEY=VALUE", multiple=True, help="Change a value of the job."
)
by_option = click.option(
    "--by", metavar="TIME", help="Finish by then: 18:00, or '2030-11-25 08:00'; as limits.deadline."
)
name_option = click.option("--name", help="Another name for the job.")
provider_option = click.option(
    "--provider",
    envvar="VASTRUN_PROVIDER",
    default=DEFAULT_PROVIDER,
    show_default=True,
    help="Where to rent: local is this computer, docker a container on it, vast is Vast.ai.",
)


def read_job_file(path: Path, sets: tuple[str, ...], name: str | None, by: str | None = None) -> JobSpec:
    """The job in a file, or in the example of that name. `by`: its deadline instead, as typed.

    Raises JobFileError, and click's own error when the file cannot be read.
    """
    example = configs_dir() / path
    if not path.exists() and example.is_file():
        say(f"{path} was not found; using the example that comes with vastrun", err=True)
        path = example
    reads(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise click.BadParameter(f"cannot read {path}: {reason}", param_hint="JOB.yaml") from error
    overrides = [*sets, *([f"name={name}"] if name else []), *([f"limits.deadline='{by}'"] if by else [])]
    wiring: Wiring = click.get_current_context().obj
    now = datetime.fromtimestamp(wiring.now(), tz=LocalZone())
    return load_job(text, str(path), overrides, str(path.resolve().parent), now)


def must_ship(wiring: Wiring, spec: JobSpec, job_file: Path) -> None:
    """Check what the job ships from this computer, before anything is asked for. Raises UsageError."""
    wiring.packer(NOTHING).check(spec)
    if spec.command is None or spec.code is not None:
        return
    say(f"{job_file} has no code: nothing is shipped besides the command", err=True)
    words = (script_of(spec.command) or " ".join(spec.command)).split()
    beside = next((word for word in words if _is_beside(word, job_file)), None)
    if beside is not None:
        raise JobValueError(
            f"command: {beside} is beside the job file, but nothing is shipped without code:",
            hint="add to the job file: code: {path: .}",
        )


def _is_beside(word: str, job_file: Path) -> bool:
    try:
        return not word.startswith(("/", "~")) and (job_file.resolve().parent / word).is_file()
    except (OSError, ValueError):
        return False


def the_run(wiring: Wiring, name: str) -> Run:
    """The run that the user means."""
    run = find_run(wiring.ledger(), name)
    concerns(run)
    return run


def confirm(question: str, *, yes: bool) -> None:
    """Returns when the user agrees. Without a terminal, or with --no-input, only --yes does."""
    if yes:
        return
    ctx = click.get_current_context()
    if ctx.find_root().params["no_input"] or not sys.stdin.isatty():
        raise UsageError(f"{question}: needs confirmation, but there is no terminal to ask at", hint="add -y")
    click.echo(f"{question} [y/N] ", err=True, nl=False)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        say("nothing was done", err=True)
        ctx.exit(EXIT_DECLINED)
