"""`vastrun ui`: show runs and batches live in the browser."""

from __future__ import annotations

import click

from vastrun.launcher.app_context import AppContext
from vastrun.launcher.cli.output import say


@click.command("ui")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port to listen on [a free one].")
@click.option("--open", "opens", is_flag=True, help="Open it in the browser.")
@click.pass_obj
def command(app: AppContext, port: int, opens: bool) -> None:
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
