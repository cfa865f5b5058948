"""`vastrun ssh-config`: print a `Host` block, for editors and file transfer."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from vastrun.contract import layout
from vastrun.launcher.app_context import AppContext
from vastrun.launcher.cli.options import run_argument, the_run
from vastrun.launcher.cli.output import say
from vastrun.launcher.commands.terminals import node_row, ssh_access_to
from vastrun.launcher.core import Phase, Run, SshAccess
from vastrun.launcher.core.errors import NoSuchRunError
from vastrun.launcher.core.labels import LABEL_PREFIX
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.ports import Ledger
from vastrun.launcher.ssh.client_options import UserSshConfig, host_block


@click.command("ssh-config")
@run_argument
@click.option("--node", metavar="N", type=click.IntRange(min=0), default=0, help="Machine of the run [0].")
@click.option("--name", metavar="HOST", help="Name of the host [vastrun-RUN].")
@click.option("--write", is_flag=True, help="Add the block to ~/.ssh, and remove those of ended runs.")
@click.pass_obj
def command(app: AppContext, run_name: str, node: int, name: str | None, write: bool) -> None:
    """Print a Host block for RUN's machine, as OpenSSH, VS Code Remote, rsync and scp read it.

    It has the run's own key and the host key that the launcher has checked. Your agent, display and proxy are
    not used. It is valid until the machine is destroyed. Programs that you start there may not outlive the
    run: download what you need.

    \b
      vastrun ssh-config last > host.conf; scp -F host.conf vastrun-RUN:FILE .
      vastrun ssh-config last --write --name gpu
      code --remote ssh-remote+gpu FOLDER
      rsync -a gpu:FOLDER/run/outputs/ outputs/

    With --write the block is a file in ~/.ssh/vastrun.d, which one line at the top of ~/.ssh/config includes.
    """
    run = node_row(the_run(app, run_name), app.ledger(), node)
    access, identity = ssh_access_to(run, app.provider(run.provider))
    host = name or f"{LABEL_PREFIX}{run.id}"
    comments = (f"Run {run.id}, folder {access.folder}", identity or "the host key was checked")
    block = host_block(host, access, comments)
    if write:
        _write(app.ledger(), UserSshConfig(Path.home() / ".ssh"), run, host, access, block)
    else:
        say(block.rstrip("\n"))


def _write(ledger: Ledger, config: UserSshConfig, run: Run, host: str, access: SshAccess, block: str) -> None:
    def has_ended(run_id: str) -> bool:
        try:
            return ledger.get(run_id).phase is Phase.ENDED
        except NoSuchRunError:
            return False  # of another ledger: its key says enough

    path = config.write(host, run.id, block)
    removed = [name for name in config.remove_stale(has_ended) if name != host]
    gone = f"; removed {', '.join(removed)}" if removed else ""
    folder, outputs = one_line(access.folder), f"{host}:{one_line(access.folder)}/{layout.OUTPUTS}/"
    say(f"wrote {path}{gone}", err=True)
    say(f"shell:    ssh {host}", err=True)
    say(f"VS Code:  code --remote ssh-remote+{host} {shlex.quote(folder)}", err=True)
    say(f"files:    rsync -a {shlex.quote(outputs)} outputs/", err=True)
