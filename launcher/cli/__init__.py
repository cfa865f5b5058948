"""The command line: imports commands when they are used, and explains failures."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import click

from vastrun.launcher.cli.tables import COMMANDS, EXAMPLES, EXIT_CODES, REPLACES_DRIVERS, place_of

_GARBAGE_AFTER = 50_000
"""New objects until a garbage collection; Python's default, 700, slows a short command by a tenth."""
_INVALID = re.compile(r"^Invalid value(?: for '?(.+?)'?)?: ")
_CLICK_PREFIXES = ("Missing ", "No such ", "Option ", "Got unexpected ", "Unexpected ")
_NAMES = ("stdin", "stdout", "stderr")
"""Standard streams in the order of their descriptors."""


class CommandLineError(click.UsageError):
    """A usage error of click, printed in the form of vastrun's errors."""

    def __init__(self, error: click.UsageError, command: str) -> None:
        super().__init__(error.format_message(), error.ctx)
        self._command = command

    def show(self, file: IO[Any] | None = None) -> None:  # noqa: ARG002 - click's signature
        from vastrun.launcher.cli.output import say

        text = _INVALID.sub(lambda match: f"{match[1]}: " if match[1] else "", self.message).rstrip(".")
        text = text[:1].lower() + text[1:] if text.startswith(_CLICK_PREFIXES) else text
        say(f"error: {text}\ntry:   {self._command} --help", err=True)


@contextmanager
def _map_usage_errors(group: click.Context | None = None) -> Iterator[None]:
    """Map click's usage errors to CommandLineError, naming the called command if click does not."""
    try:
        yield
    except (CommandLineError, click.exceptions.NoArgsIsHelpError):
        raise
    except click.UsageError as error:
        called = f"{group.command_path} {group.invoked_subcommand}" if group else "vastrun"
        raise CommandLineError(error, error.ctx.command_path if error.ctx else called) from error


class LazyCommands(click.Group):
    """A group that lists commands from a table and imports only the called one."""

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        with _map_usage_errors():
            return super().make_context(*arguments, **options)

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name = place_of(cmd_name)
        command = getattr(import_module(f"vastrun.launcher.cli.{module}"), name)
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
        from vastrun.launcher.cli.failures import report_errors

        with report_errors(ctx), _map_usage_errors(ctx):
            return super().invoke(ctx)


@click.group(
    cls=LazyCommands,
    help=f"Rent GPUs, train, prove what happened, destroy the machine.\n\n{EXAMPLES}",
    context_settings={"auto_envvar_prefix": "VASTRUN", "help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="vastrun")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.option("--no-input", is_flag=True, help="Never ask; fail where an answer is needed.")
@click.pass_context
def cli(ctx: click.Context, debug: bool, no_input: bool) -> None:  # noqa: ARG001 - read from the context
    """Read the global options, choose the adapters, and replace dead background drivers."""
    if debug:
        sys.excepthook = sys.__excepthook__
    if ctx.obj is None:
        from vastrun.launcher.environment import wire

        ctx.obj = wire(os.environ)
    if ctx.invoked_subcommand in REPLACES_DRIVERS:
        presence = ctx.obj.presence
        if presence is not None and (killed := presence.killed_for_memory()):
            from vastrun.launcher.cli.background import continue_killed

            continue_killed(ctx.obj, presence, killed)
        if _has_drivers(ctx.obj.paths.drivers):
            from vastrun.launcher.cli.background import replace_dead_drivers

            replace_dead_drivers(ctx.obj)


def _has_drivers(folder: Path | None) -> bool:
    """Return whether a background driver has a record there; checked first, because imports are slow."""
    return folder is not None and any(folder.glob("*.json"))


def main() -> None:
    """Run the program `vastrun`."""
    open_closed_streams()
    # Most objects of a short command come from imports and are never garbage.
    gc.set_threshold(_GARBAGE_AFTER)
    sys.excepthook = _report_crash
    cli(prog_name="vastrun")


def _report_crash(kind: type[BaseException], error: BaseException, _: TracebackType | None) -> None:
    """Print one line instead of the traceback of an unexpected exception."""
    from vastrun.launcher.cli.output import say

    say(f"error: {kind.__name__}: {error}\ntry:   vastrun --debug ... shows the traceback", err=True)


def open_closed_streams() -> None:
    """Open each closed standard stream on /dev/null, before another file takes its descriptor.

    Otherwise a ledger opened as descriptor 2 would receive the messages to stderr.
    """
    for descriptor, name in enumerate(_NAMES):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free descriptor is taken: those below are open by now.
            opened = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(opened, True)
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
