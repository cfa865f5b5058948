"""`vastrun ssh`, `ssh-config`, `forward`: a shell on a run's machine, its `Host` block, a port from there."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import click

from vastrun.contract import layout
from vastrun.launcher.app import App
from vastrun.launcher.cli.options import run_argument, signed_run
from vastrun.launcher.cli.output import exit_with, note, say
from vastrun.launcher.commands.nodes import node_row
from vastrun.launcher.core import LocalProgram, Phase, Run, SshAccess
from vastrun.launcher.core.errors import NoSuchRunError, UsageError, VastrunError
from vastrun.launcher.core.labels import LABEL_PREFIX
from vastrun.launcher.flow.machines import find_machines
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.ports import AllowsSsh, ChecksIdentity, Ledger, OpensTerminal, Provider, Remote
from vastrun.launcher.ssh.client_options import UserSshConfig, host_block

_PORT = click.IntRange(1, 65535)


@click.command("ssh", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@run_argument
@click.argument("words", metavar="[COMMAND]...", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def ssh_command(app: App, run_name: str, words: tuple[str, ...]) -> None:
    """Open a shell on RUN's machine, in its box folder, or run COMMAND there.

    Uses the run's own key and the host key that the launcher has checked. Your SSH settings, agent and
    display are not used. The exit code is that of the shell or the command.

    \b
      vastrun ssh last
      vastrun ssh last nvidia-smi
      vastrun ssh last 'tail -n 20 run/log.txt'
    """
    run = signed_run(app, run_name)
    with _remote(run, app.provider(run.provider)) as remote:
        program = remote.terminal(" ".join(words) or None)
    exit_with(run_program(program))


@click.command("forward")
@run_argument
@click.argument("port", metavar="PORT", type=_PORT)
@click.option("--local-port", metavar="PORT", type=_PORT, help="Port on this computer [PORT].")
@click.pass_obj
def forward_command(app: App, run_name: str, port: int, local_port: int | None) -> None:
    """Forward PORT from RUN's machine to this computer until Ctrl-C, as for TensorBoard or a notebook.

    Only this computer can connect: the local port is on 127.0.0.1. The program on the machine may listen on
    127.0.0.1, too.

    \b
      vastrun ssh last 'tensorboard --logdir run --port 6006 >/dev/null 2>&1 &'
      vastrun forward last 6006
    """
    run = signed_run(app, run_name)
    here = local_port or port
    with _remote(run, app.provider(run.provider)) as remote:
        program = remote.tunnel(port, here)
    if program is None:
        note(f"http://127.0.0.1:{port} is already on this computer: {run.id} runs here")
        return
    note(f"http://127.0.0.1:{here} forwards to port {port} of {run.id}; Ctrl-C ends it")
    exit_with(run_program(program))


@click.command("ssh-config")
@run_argument
@click.option("--node", metavar="N", type=click.IntRange(min=0), default=0, help="Machine of the run [0].")
@click.option("--name", metavar="HOST", help="Name of the host [vastrun-RUN].")
@click.option("--write", is_flag=True, help="Add the block to ~/.ssh, and remove those of ended runs.")
@click.pass_obj
def ssh_config_command(app: App, run_name: str, node: int, name: str | None, write: bool) -> None:
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
    run = node_row(signed_run(app, run_name), app.driver_ledger(), node)
    with _connection(run, app.provider(run.provider)) as remote:
        if not isinstance(remote, AllowsSsh):
            raise _no_server_error(run, remote)
        access, identity = remote.ssh_access(), remote.identity if isinstance(remote, ChecksIdentity) else ""
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
    note(f"wrote {path}{gone}")
    note(f"shell:    ssh {host}")
    note(f"VS Code:  code --remote ssh-remote+{host} {shlex.quote(folder)}")
    note(f"files:    rsync -a {shlex.quote(outputs)} outputs/")


def _no_server_error(run: Run, remote: Remote) -> UsageError:
    """Return the error that names what the user can do instead."""
    folder = remote.terminal().cwd if isinstance(remote, OpensTerminal) and run.provider == "local" else None
    if folder is not None:
        text = f"{run.id} runs on this computer, which needs no SSH"
        return UsageError(text, hint=f"open the folder {folder}")
    text = f"machines of {run.provider} have no SSH server that your programs can use"
    return UsageError(
        text, hint=f"a shell, without SSH: vastrun ssh {run.id}; its files: vastrun pull {run.id}"
    )


def run_program(program: LocalProgram) -> int:
    """Run the program at this terminal until it ends; return its exit code. Ctrl-C is the program's alone."""
    tool = program.argv[0]
    if shutil.which(tool) is None:
        raise VastrunError(
            f"there is no {tool} on this computer", hint=f"install {_PACKAGES.get(tool, tool)}"
        )
    env = None if program.env is None else dict(program.env)
    with subprocess.Popen(program.argv, cwd=program.cwd, env=env) as process:
        previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            code = process.wait()
        finally:
            signal.signal(signal.SIGINT, previous)
    return 0 if code in (-signal.SIGINT, 128 + signal.SIGINT) else code if code >= 0 else 128 - code


_PACKAGES = {"ssh": "OpenSSH's client (sudo apt-get install openssh-client)"}


@contextmanager
def _remote(run: Run, provider: Provider) -> Iterator[OpensTerminal]:
    with _connection(run, provider) as remote:
        if not isinstance(remote, OpensTerminal):
            raise UsageError(f"cannot log in to machines of {run.provider}")
        yield remote


def _connection(run: Run, provider: Provider) -> closing[Remote]:
    machines = find_machines(run, provider)
    if not machines:
        raise UsageError(f"{run.id} no longer has a machine", hint=f"its outputs are in {run.out_dir}")
    return closing(provider.connect(machines[0]))
