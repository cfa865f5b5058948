"""Arguments and options shared by several commands."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import click
from click.decorators import FC

from vastrun.launcher.app import DEFAULT_PROVIDER, App
from vastrun.launcher.cli.output import note, set_error_run
from vastrun.launcher.commands.settings import require_valid
from vastrun.launcher.core import Run
from vastrun.launcher.core.errors import UsageError, VastrunError
from vastrun.launcher.core.labels import tag_fault
from vastrun.launcher.core.verdict import EXIT_DECLINED
from vastrun.launcher.ledger.run_ids import LAST, find_run
from vastrun.launcher.ui.screens import PlainScreens

_RUN_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,99}", re.ASCII)


def _complete_run(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete run ids from the ledger, without network access.

    A team's ledger may hold a row that another program wrote; a shell would take its line breaks as names.
    """
    try:
        runs = (ctx.find_root().obj or App(os.environ)).ledger().runs()
    except VastrunError:
        return []
    names = (LAST, *(run.id for run in runs if _RUN_ID.fullmatch(run.id)))
    return [name for name in names if name.startswith(incomplete)]


def _tags(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if fault := tag_fault(value):
            raise click.BadParameter(fault)
    return values


run_argument = click.argument("run_name", metavar="RUN", shell_complete=_complete_run)
maybe_run_argument = click.argument("run_name", metavar="[RUN]", required=False, shell_complete=_complete_run)
PATH, FILE = click.Path(path_type=Path), click.Path(path_type=Path, dir_okay=False)
job_argument = click.argument("job_file", metavar="JOB.yaml", type=PATH)
maybe_job_argument = click.argument("job_file", metavar="[JOB.yaml]", required=False, type=PATH)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")


def _use_plain_screens(ctx: click.Context, _: click.Parameter, plain: bool) -> None:
    if plain and not ctx.resilient_parsing:
        root = ctx.find_root()
        root.obj = root.obj.with_changes(screens=PlainScreens(root.obj.screens.plain))
        ctx.obj = root.obj


plain_option = click.option(
    "--plain",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_use_plain_screens,
    help="Print plain lines instead of a live view, as with NO_COLOR or CI set, or without a terminal.",
)
set_option = click.option(
    "--set", "sets", metavar="KEY=VALUE", multiple=True, help="Override a value of the job."
)
by_option = click.option(
    "--by", metavar="TIME", help="Deadline (18:00 or '2030-11-25 08:00'); overrides limits.deadline."
)
tag_option = click.option(
    "--tag", "tags", metavar="TAG", multiple=True, callback=_tags, help="Add a tag (see cost --by tag)."
)


_PROVIDER_HELP = """Provider of machines: local (this computer), docker (a container on it), vast (Vast.ai),
slurm (a cluster job), pool (a held machine), or a plug-in's name [from `vastrun config`, else local]."""


def _provider_option(*, is_lenient: bool) -> Callable[[FC], FC]:
    """Return the option --provider, by default of the config file. `is_lenient`: its faults are notes."""

    def provider_or_default(ctx: click.Context, _: click.Parameter, value: str | None) -> str:
        if ctx.resilient_parsing:
            return DEFAULT_PROVIDER
        app: App = ctx.find_root().obj
        loaded = app.settings()
        settings = loaded.settings if is_lenient else require_valid(loaded)
        if loaded.faults:
            note("\n".join(f"note: {fault}" for fault in loaded.faults))
        return value or settings.provider or DEFAULT_PROVIDER

    return click.option(
        "--provider", envvar="VASTRUN_PROVIDER", callback=provider_or_default, help=_PROVIDER_HELP
    )


provider_option = _provider_option(is_lenient=False)
"""Option of commands that may spend money: a faulty config file is an error."""
lenient_provider_option = _provider_option(is_lenient=True)
"""Option of all other commands: a faulty config file is a note."""


def the_run(app: App, name: str) -> Run:
    """Find the run by its id, the first letters of one, or `last`; errors from here on are about it."""
    run = find_run(app.ledger(), name)
    set_error_run(run)
    return run


def signed_run(app: App, name: str) -> Run:
    """Find the run as `the_run`, for a command that does something by its row. Raises UnsignedError."""
    return app.driver_ledger().get(the_run(app, name).id)


def confirm(question: str, *, yes: bool) -> None:
    """Ask, and return if the user agrees. Without a terminal, or with --no-input, --yes is required."""
    if yes:
        return
    ctx = click.get_current_context()
    if ctx.find_root().params["no_input"] or not sys.stdin.isatty():
        raise UsageError(f"{question}: this needs confirmation, but there is no terminal", hint="add -y")
    click.echo(f"{question} [y/N] ", err=True, nl=False)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        note("nothing was done")
        ctx.exit(EXIT_DECLINED)


def seconds(value: str) -> float:
    """Parse a duration as seconds: `90`, `90s`, `10m`, `2h`, `1d`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", value)
    if match is None:
        raise click.BadParameter(f"expected a duration like 90s, 10m or 2h, got {value!r}")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[2] or "s"]
