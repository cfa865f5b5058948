"""`vastrun forward`: a port of a run's machine on this computer."""

from __future__ import annotations

import click

from vastrun.launcher.cli.options import run_argument, the_run
from vastrun.launcher.cli.output import say
from vastrun.launcher.commands.terminals import run_here, tunnel_to
from vastrun.launcher.wiring import Wiring

_PORT = click.IntRange(1, 65535)


@click.command("forward")
@run_argument
@click.argument("port", metavar="PORT", type=_PORT)
@click.option("--local-port", metavar="PORT", type=_PORT, help="The port here; the same when not given.")
@click.pass_context
def command(ctx: click.Context, run_name: str, port: int, local_port: int | None) -> None:
    """Make PORT of RUN's machine a port of this computer, until Ctrl-C: for TensorBoard, or a notebook.

    Nobody else reaches it: it listens on 127.0.0.1 alone, and the program on the machine may do so, too.

    \b
      vastrun ssh last 'tensorboard --logdir run --port 6006 >/dev/null 2>&1 &'
      vastrun forward last 6006
    """
    wiring: Wiring = ctx.obj
    run = the_run(wiring, run_name)
    here = local_port or port
    program = tunnel_to(run, wiring.provider(run.provider), port, here)
    if program is None:
        say(f"http://127.0.0.1:{port} is on this computer already: {run.id} runs here", err=True)
        return
    say(f"http://127.0.0.1:{here} leads to port {port} of {run.id}; Ctrl-C ends it", err=True)
    ctx.exit(run_here(program))
