"""`vastrun serve`: keep runs and batches going that nobody drives."""

from __future__ import annotations

from pathlib import Path

import click

from vastrun.launcher.api.serving import serve
from vastrun.launcher.cli.output import say
from vastrun.launcher.commands.service import UserService
from vastrun.launcher.wiring import Wiring


@click.command("serve")
@click.option("--driver", is_flag=True, help="Drive what no living launcher drives.")
@click.option(
    "--install", is_flag=True, help="Write a service that does so from each start of this computer."
)
@click.option("--uninstall", is_flag=True, help="Remove that service.")
@click.pass_obj
def command(wiring: Wiring, driver: bool, install: bool, uninstall: bool) -> None:
    """Keep all open runs and batches of the ledger going that no living launcher drives, until Ctrl-C.

    Without VASTRUN_LEDGER these are your own on this computer: those of a driver that was killed, or that a
    restart of the computer ended. With it they are the whole team's, on any of its computers. Their outputs
    come to runs/ and batches/ below this folder. Nothing listens on a port.

    --install writes a systemd user unit, or a launchd agent on a Mac, which serves from this folder.
    """
    if driver + install + uninstall != 1:
        raise click.UsageError("give one of --driver, --install and --uninstall")
    if not driver:
        assert wiring.service is not None
        service = wiring.service(Path.cwd())
        _install(service) if install else _uninstall(service)
        return
    interrupts = wiring.interrupts(views=True)
    say(f"driving what nobody drives of {wiring.place}; Ctrl-C leaves it", err=True)
    with interrupts.listening():
        serve(wiring, interrupts)


def _install(service: UserService) -> None:
    service.install()
    say(f"wrote {service.path}")
    if service.left_out:
        say(f"not in it, since secret: {', '.join(service.left_out)}; write lines NAME=value for them into")
        say(f"  {service.secrets_file}   (chmod 600)")
    say("start it now and at each login:")
    for line in service.start:
        say(f"  {line}")
    if service.path.suffix == ".service":
        say("let it run without a login, from the start of this computer:")
        say("  loginctl enable-linger")
    say(f"its log:\n  {service.log}")


def _uninstall(service: UserService) -> None:
    service.uninstall()
    say(f"removed {service.path}")
    say("end it, if it runs:")
    for line in service.stop:
        say(f"  {line}")
