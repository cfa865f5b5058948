"""A shell on a run's machine, and tunnels to its ports, for the user's own hands."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from vastrun.launcher.core import LocalProgram, Run, SshAccess
from vastrun.launcher.core.errors import UsageError, VastrunError
from vastrun.launcher.flow.machines import find_machines
from vastrun.launcher.ports import AllowsSsh, ChecksIdentity, Ledger, OpensTerminal, Provider, Remote

_INTERRUPTED = (-signal.SIGINT, 128 + signal.SIGINT)


def terminal_of(run: Run, provider: Provider, command: str | None) -> LocalProgram:
    """Return what opens a shell on the run's machine. Raises UsageError when it has none; ProviderError."""
    with _remote(run, provider) as remote:
        return remote.terminal(command)


def tunnel_to(run: Run, provider: Provider, port: int, local_port: int) -> LocalProgram | None:
    """Return what leads to a port of the run's machine; None where it is this computer's. Raises as above."""
    with _remote(run, provider) as remote:
        return remote.tunnel(port, local_port)


def node_row(run: Run, ledger: Ledger, node: int) -> Run:
    """Return the row of the newest machine of that node. Raises UsageError when the run has no such node."""
    rows = [run, *ledger.runs(leader=run.id)]
    found = [row for row in rows if row.node == node]
    if not found:
        last = max(row.node for row in rows)
        has = f"nodes 0 to {last}" if last else "one node, 0"
        raise UsageError(f"--node {node}: {run.id} has {has}", hint=f"vastrun status {run.id}")
    return found[-1]


def ssh_access_to(run: Run, provider: Provider) -> tuple[SshAccess, str]:
    """Return how the user's own programs log in to the run's machine, and how it was identified.

    Raises UsageError when the machine has no SSH server; ProviderError.
    """
    with _connection(run, provider) as remote:
        if not isinstance(remote, AllowsSsh):
            raise _no_server_error(run, remote)
        access = remote.ssh_access()
        return access, remote.identity if isinstance(remote, ChecksIdentity) else ""


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
    return 0 if code in _INTERRUPTED else code if code >= 0 else 128 - code


_PACKAGES = {"ssh": "OpenSSH's client (sudo apt-get install openssh-client)"}


@contextmanager
def _remote(run: Run, provider: Provider) -> Iterator[OpensTerminal]:
    with _connection(run, provider) as remote:
        if not isinstance(remote, OpensTerminal):
            raise UsageError(f"cannot log in to machines of {run.provider}")
        yield remote


@contextmanager
def _connection(run: Run, provider: Provider) -> Iterator[Remote]:
    machines = find_machines(run, provider)
    if not machines:
        raise UsageError(f"{run.id} no longer has a machine", hint=f"its outputs are in {run.out_dir}")
    remote = provider.connect(machines[0])
    try:
        yield remote
    finally:
        remote.close()
