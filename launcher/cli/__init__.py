"""The command line: imports commands when they are used, and explains failures."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import TracebackType
from typing import IO, Any

import click

COMMANDS: Mapping[str, str] = {
    "init": "Write a job file for your own program or for the onboard trainer.",
    "launch": "Train: rent a machine, upload the job, follow it, download the outputs, destroy the machine.",
    "rehearse": "Run a job's steps one by one on this computer. Costs nothing.",
    "plan": "Show the offers for a job with their expected and maximum costs. Costs nothing.",
    "hold": "Keep a machine, so that further runs start there without booting.",
    "sweep": "Run a job with each combination of some values, under one budget.",
    "batch": "Run a batch file: many points, one budget, a table of results.",
    "status": "List the runs, or show one in detail.",
    "logs": "Print or follow a run's log.",
    "attach": "Follow a run, and drive it if no launcher does.",
    "wait": "Wait until a run ends; the exit code is its verdict.",
    "stop": "Stop a run: save a checkpoint, download the outputs, destroy the machine.",
    "resume": "Continue a run whose launcher was killed or detached.",
    "serve": "Drive runs and batches that have no launcher, on any computer of a team.",
    "why": "Explain why a run ended, with all proofs and what to try next.",
    "report": "Write one HTML page about a run or a batch; it opens without a network.",
    "ui": "Show runs and batches live in the browser; read-only, on this computer only.",
    "bugreport": "Write one file for a bug report: transcript, proofs, versions; no secrets.",
    "diff": "Compare two runs: job, image, host, end, metrics.",
    "cost": "Show the cost of runs, or compare it with the bill.",
    "hosts": "List the machines that were rented, and which are avoided because they failed.",
    "ssh": "Open a shell on a run's machine, or run a command there.",
    "ssh-config": "Print a Host block for a run's machine: VS Code, rsync, scp.",
    "forward": "Forward a port from a run's machine, as for TensorBoard or a notebook.",
    "pull": "Download a run's outputs from its machine.",
    "export": "Write the weights of a run's checkpoint to one file.",
    "reap": "Destroy orphaned machines.",
    "config": "Show or change your settings: monthly and total budgets, the default provider.",
    "image": "Build, push, lock, verify and list the container images.",
    "doctor": "Check this computer, and each provider with your account and its key.",
    "schema": "Print the JSON Schema of job files, batch files or the --json output of a command.",
    "completion": "Print the completion script for a shell.",
    "skill": "Print a SKILL.md that tells a coding agent how to use vastrun within a limit.",
}
_ELSEWHERE = {"down": "stop", "exec": "ssh", "kill": "stop", "ls": "status", "ps": "status", "rm": "stop"}
"""Names that other tools give to commands of this one."""

SHARED_MODULES: Mapping[str, tuple[str, ...]] = {
    "runs": ("attach", "wait", "stop", "resume"),
    "ssh": ("ssh", "ssh-config", "forward"),
    "report": ("report", "why", "diff"),
    "downloads": ("pull", "export"),
    "machines": ("hold", "reap", "hosts"),
    "batch_submit": ("sweep",),
    "config": ("config", "completion", "skill"),
    "serve": ("serve", "ui"),
}
"""Modules that define several commands, as `NAME_command`. Another command is `command` in the
module of its name."""

REPLACES_DRIVERS = frozenset(
    {
        *("launch", "plan", "status", "logs", "attach", "wait", "why", "report", "ui", "diff", "cost"),
        *("hosts", "ssh", "ssh-config", "forward", "pull", "export"),
    }
)
"""Commands that first replace background drivers that died."""

EXAMPLES = """\b
Examples:
  vastrun launch quickstart.yaml        train, and download the outputs
  vastrun launch job.yaml -d            the same, in the background
  vastrun logs -f last                  follow the newest run's log
  vastrun why last                      why it ended, with the proofs
"""

EXIT_CODES: Mapping[int, str] = {
    0: "success: the run succeeded and its machine is destroyed, or it continues detached",
    1: "error: this computer, the ledger or the provider failed",
    2: "usage error: the command line or the job file is wrong; nothing was done",
    3: "stopped or declined by the user, or pruned by its batch",
    4: "the provider rejected the key",
    5: "the run failed",
    6: "the run hung",
    7: "the machine was preempted or lost, or outputs were lost with it",
    8: "no offer fits the job",
    9: "a time or money limit was reached, or a budget has no room for a run",
    10: "unknown: a proof of success is missing, or two contradict each other",
    11: "the destruction of the machine is not confirmed; try again: vastrun resume RUN",
    124: "wait --timeout expired",
    130: "interrupted before anything was rented",
}
_GARBAGE_AFTER = 50_000
"""New objects until a garbage collection; Python's default, 700, slows a short command by a tenth."""
_INVALID = re.compile(r"^Invalid value(?: for '?(.+?)'?)?: ")
_CLICK_PREFIXES = ("Missing ", "No such ", "Option ", "Got unexpected ", "Unexpected ")


def place_of(command: str) -> tuple[str, str]:
    """Return the module in this package that defines the command, and its name there."""
    name = command.replace("-", "_")
    for module, commands in SHARED_MODULES.items():
        if command in commands:
            return module, f"{name}_command"
    return name, "command"


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

            near = [_ELSEWHERE[args[0]]] if args[0] in _ELSEWHERE else []
            near = near or difflib.get_close_matches(args[0], COMMANDS, n=1)
            ctx.fail(f"no such command: {args[0]}" + (f"; did you mean {near[0]}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])

    def invoke(self, ctx: click.Context) -> Any:
        from vastrun.launcher.cli.output import report_errors

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
        from vastrun.launcher.app import App

        ctx.obj = App(os.environ)
    if ctx.invoked_subcommand in REPLACES_DRIVERS:
        if killed := ctx.obj.presence.killed_for_memory():
            from vastrun.launcher.cli.background import continue_killed

            continue_killed(ctx.obj, killed)
        # Checked first, because imports are slow.
        if ctx.obj.drivers is not None and any(ctx.obj.drivers.glob("*.json")):
            from vastrun.launcher.cli.background import replace_dead_drivers

            replace_dead_drivers(ctx.obj)


def main() -> None:
    """Run the program `vastrun`."""
    # Closed streams get /dev/null before another file takes their descriptor. Otherwise a ledger opened as
    # descriptor 2 would receive the messages to stderr.
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free descriptor is taken: those below are open by now.
            opened = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(opened, True)
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    # Most objects of a short command come from imports and are never garbage.
    gc.set_threshold(_GARBAGE_AFTER)
    sys.excepthook = _report_crash
    cli(prog_name="vastrun")


def _report_crash(kind: type[BaseException], error: BaseException, _: TracebackType | None) -> None:
    """Print one line instead of the traceback of an unexpected exception."""
    from vastrun.launcher.cli.output import say

    say(f"error: {kind.__name__}: {error}\ntry:   vastrun --debug ... shows the traceback", err=True)
