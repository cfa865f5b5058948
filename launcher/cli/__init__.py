"""The command line: a table of commands, each imported when it is used."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from types import TracebackType
from typing import Any

import click

from launcher.cli.exit_codes import EXIT_CODES

# The module of a command is launcher.cli.<name>; what it holds by the name `command` is the command.
COMMANDS: Mapping[str, str] = {
    "launch": "Train: rent a machine, ship the job, follow it, bring the outputs home, end the machine.",
    "plan": "Show the offers for a job and what it may cost. Costs nothing.",
    "status": "List the runs, or show one from near.",
    "logs": "Print or follow a run's log.",
    "attach": "Follow a run, and drive it if nobody does.",
    "wait": "Wait for a run's end; the exit code is its verdict.",
    "stop": "Stop a run: it saves a checkpoint, its outputs come home, its machine ends.",
    "resume": "Go on with a run whose launcher was killed.",
    "why": "Say why a run ended as it did, with all proofs, and what to try next.",
    "cost": "Say what runs cost.",
    "pull": "Fetch a run's outputs from its machine again.",
    "reap": "End machines of ours that no open run claims.",
    "completion": "Print the completion script of a shell.",
}

EXAMPLES = """\b
Examples:
  vastrun launch quickstart.yaml        train, and bring the outputs home
  vastrun launch job.yaml -d            the same, detached once it trains
  vastrun logs -f last                  follow the newest run's log
  vastrun why last                      how it ended, and the proofs
"""


class Commands(click.Group):
    """Lists commands from the table; imports the one that is called."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"launcher.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            ctx.fail(f"no such command: {args[0]}" + (f"; did you mean {near[0]}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])

    def invoke(self, ctx: click.Context) -> Any:
        from launcher.cli.failures import explained

        with explained(ctx):
            return super().invoke(ctx)


@click.group(
    cls=Commands,
    help=f"Rent the right GPUs, train, prove what happened, give the machine back.\n\n{EXAMPLES}",
    context_settings={"auto_envvar_prefix": "VASTRUN", "help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="vastrun")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.option("--no-input", is_flag=True, help="Never ask; what needs an answer is refused.")
@click.pass_context
def cli(ctx: click.Context, debug: bool, no_input: bool) -> None:  # noqa: ARG001 - read from the context
    if debug:
        sys.excepthook = sys.__excepthook__
    if ctx.obj is None:
        from launcher.wiring import wire

        ctx.obj = wire(os.environ)


def main() -> None:
    """The program."""
    sys.excepthook = _crashed
    cli(prog_name="vastrun")


def _crashed(kind: type[BaseException], error: BaseException, _: TracebackType | None) -> None:
    """A fault of ours: one line, no traceback."""
    click.echo(f"error: {kind.__name__}: {error}\ntry:   vastrun --debug ... shows where", err=True)
