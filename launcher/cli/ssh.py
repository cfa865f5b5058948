"""`vastrun ssh`: open a shell on a run's machine."""

from __future__ import annotations

import click

from vastrun.launcher.app_context import AppContext
from vastrun.launcher.cli.options import run_argument, the_run
from vastrun.launcher.commands.terminals import run_program, terminal_of


@click.command("ssh", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@run_argument
@click.argument("words", metavar="[COMMAND]...", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(ctx: click.Context, run_name: str, words: tuple[str, ...]) -> None:
    """Open a shell on RUN's machine, in its box folder, or run COMMAND there.

    Uses the run's own key and the host key that the launcher has checked. Your SSH settings, agent and
    display are not used. The exit code is that of the shell or the command.

    \b
      vastrun ssh last
      vastrun ssh last nvidia-smi
      vastrun ssh last 'tail -n 20 run/log.txt'
    """
    app: AppContext = ctx.obj
    run = the_run(app, run_name)
    program = terminal_of(run, app.provider(run.provider), " ".join(words) or None)
    ctx.exit(run_program(program))
