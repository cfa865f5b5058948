"""`vastrun ui`: runs and batches in the browser, as they are now."""

from __future__ import annotations

import click

from vastrun.launcher.cli.output import say
from vastrun.launcher.wiring import Wiring


@click.command("ui")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Where to listen [0: a port that is free]."
)
@click.option("--open", "opens", is_flag=True, help="Show it in the browser.")
@click.pass_obj
def command(wiring: Wiring, port: int, opens: bool) -> None:
    """Show runs and batches in the browser, as they are now, until Ctrl-C.

    Prints the address, which only this computer has (127.0.0.1), with a token: whoever does not know it sees
    nothing. The pages can be read only, look again by themselves, and ask nobody else. They show what a
    launcher brings home while it drives a run; they ask no machine.

    From another computer: ssh -L 8000:127.0.0.1:8000 HOST, there: vastrun ui --port 8000
    """
    from vastrun.launcher.ui.serving.server import Server  # slow to import: HTTP
    from vastrun.launcher.ui.serving.site import Site

    with Server(Site(wiring.ledger, wiring.now).page, port) as server:
        say(server.address)
        say("Ctrl-C ends it", err=True)
        if opens and not wiring.browse(server.address):
            say("no browser was found; open the address in one", err=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("ended: nothing listens any more", err=True)
