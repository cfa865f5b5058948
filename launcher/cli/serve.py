"""`vastrun serve`: keep runs and batches going that nobody drives."""

from __future__ import annotations

import click

from launcher.api.serving import serve
from launcher.cli.output import say
from launcher.core import UserRequest
from launcher.wiring import Wiring


@click.command("serve")
@click.option("--driver", is_flag=True, required=True, help="Drive what no living launcher drives.")
@click.pass_obj
def command(wiring: Wiring, driver: bool) -> None:  # noqa: ARG001 - there is nothing else to serve yet
    """Keep all open runs and batches of the ledger going that no living launcher drives, until Ctrl-C.

    With VASTRUN_LEDGER these are the whole team's, on any of its computers: no laptop has to stay open.
    Their outputs come to runs/ and batches/ below this folder. Nothing listens on a port.
    """
    interrupts = wiring.interrupts(UserRequest.DETACH, UserRequest.NONE, None, True)
    say(f"driving what nobody drives of {wiring.place}; Ctrl-C leaves it", err=True)
    with interrupts.listening():
        serve(wiring, interrupts)
