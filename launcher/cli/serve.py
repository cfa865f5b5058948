"""`vastrun serve`, `ui`: drive runs and batches that have no launcher; show them in the browser."""

from __future__ import annotations

from pathlib import Path

import click

from vastrun.launcher.api.serve import serve
from vastrun.launcher.app_context import AppContext
from vastrun.launcher.cli.output import say
from vastrun.launcher.commands.service import UserService


@click.command("serve")
@click.option("--driver", is_flag=True, help="Drive runs and batches that have no launcher.")
@click.option(
    "--install", is_flag=True, help="Write a user service that does so whenever this computer is on."
)
@click.option("--uninstall", is_flag=True, help="Remove that service.")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="With --driver: answer Prometheus on this port of 127.0.0.1; 0 takes a free one [off].",
)
@click.pass_obj
def serve_command(
    app: AppContext, driver: bool, install: bool, uninstall: bool, metrics_port: int | None
) -> None:
    """Drive all open runs and batches of the ledger that have no launcher, until Ctrl-C.

    Without VASTRUN_LEDGER these are your own on this computer, whose driver was killed or ended by a
    restart. With it they are the whole team's, from any of its computers. Outputs are downloaded to runs/
    and batches/ in the current folder. No port is opened without
    --metrics-port.

    --install writes a systemd user unit, or a launchd agent on a Mac, that serves from the current folder.
    """
    if driver + install + uninstall != 1:
        raise click.UsageError("choose one of --driver, --install and --uninstall")
    if metrics_port is not None and not driver:
        raise click.UsageError("--metrics-port needs --driver")
    if not driver:
        assert app.make.service is not None
        service = app.make.service(Path.cwd())
        _install(service) if install else _uninstall(service)
        return
    interrupts = app.make.interrupts(views=True)
    say(f"driving runs and batches without a launcher in {app.user.place}; Ctrl-C ends this server", err=True)
    with interrupts.listening():
        serve(app, interrupts, metrics_port)


def _install(service: UserService) -> None:
    service.install()
    say(f"wrote {service.path}")
    if service.left_out:
        say(f"left out as secret: {', '.join(service.left_out)}; write lines NAME=value for them into")
        say(f"  {service.secrets_file}   (chmod 600)")
    say("to start it now and at each login:")
    for line in service.start:
        say(f"  {line}")
    if service.path.suffix == ".service":
        say("to start it at boot, without a login:")
        say("  loginctl enable-linger")
    say(f"its log:\n  {service.log}")


def _uninstall(service: UserService) -> None:
    service.uninstall()
    say(f"removed {service.path}")
    say("to stop it if it is running:")
    for line in service.stop:
        say(f"  {line}")


@click.command("ui")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port to listen on [a free one].")
@click.option("--open", "opens", is_flag=True, help="Open it in the browser.")
@click.pass_obj
def ui_command(app: AppContext, port: int, opens: bool) -> None:
    """Show runs and batches live in the browser until Ctrl-C.

    Prints an address on 127.0.0.1 with a token; without the token nothing is shown. The pages are read-only,
    refresh automatically, and connect only to this computer. They show what the launchers have downloaded;
    they query no machine.

    From another computer: ssh -L 8000:127.0.0.1:8000 HOST, and on HOST: vastrun ui --port 8000
    """
    from vastrun.launcher.ui.web.server import Server  # slow to import: HTTP
    from vastrun.launcher.ui.web.site import Site

    with Server(Site(app.ledger, app.now).page, port) as server:
        say(server.address)
        say("Ctrl-C stops the server", err=True)
        if opens and not app.make.browse(server.address):
            say("cannot find a browser; open the address in one", err=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("server stopped", err=True)
