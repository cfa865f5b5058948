"""`vastrun forward`: forward a port from a run's machine."""

from __future__ import annotations

import click

from vastrun.launcher.app_context import AppContext
from vastrun.launcher.cli.options import run_argument, the_run
from vastrun.launcher.cli.output import say
from vastrun.launcher.commands.terminals import run_program, tunnel_to

_PORT = click.IntRange(1, 65535)


@click.command("forward")
@run_argument
@click.argument("port", metavar="PORT", type=_PORT)
@click.option("--local-port", metavar="PORT", type=_PORT, help="Port on this computer [PORT].")
@click.pass_context
def command(ctx: click.Context, run_name: str, port: int, local_port: int | None) -> None:
    """Forward PORT from RUN's machine to this computer until Ctrl-C, as for TensorBoard or a notebook.

    Only this computer can connect: the local port is on 127.0.0.1. The program on the machine may listen on
    127.0.0.1, too.

    \b
      vastrun ssh last 'tensorboard --logdir run --port 6006 >/dev/null 2>&1 &'
      vastrun forward last 6006
    """
    app: AppContext = ctx.obj
    run = the_run(app, run_name)
    here = local_port or port
    program = tunnel_to(run, app.provider(run.provider), port, here)
    if program is None:
        say(f"http://127.0.0.1:{port} is already on this computer: {run.id} runs here", err=True)
        return
    say(f"http://127.0.0.1:{here} forwards to port {port} of {run.id}; Ctrl-C ends it", err=True)
    ctx.exit(run_program(program))
