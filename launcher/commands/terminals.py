"""A shell on a run's machine, and tunnels to its ports, for the user's own hands."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from vastrun.launcher.core import LocalProgram, Run
from vastrun.launcher.core.errors import UsageError, VastrunError
from vastrun.launcher.flow.machines import find_machines
from vastrun.launcher.ports import OpensTerminal, Provider

_INTERRUPTED = (-signal.SIGINT, 128 + signal.SIGINT)


def terminal_of(run: Run, provider: Provider, command: str | None) -> LocalProgram:
    """Return what opens a shell on the run's machine. Raises UsageError when it has none; ProviderError."""
    with _remote(run, provider) as remote:
        return remote.terminal(command)


def tunnel_to(run: Run, provider: Provider, port: int, local_port: int) -> LocalProgram | None:
    """Return what leads to a port of the run's machine; None where it is this computer's. Raises as above."""
    with _remote(run, provider) as remote:
        return remote.tunnel(port, local_port)


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
    machines = find_machines(run, provider)
    if not machines:
        raise UsageError(f"{run.id} no longer has a machine", hint=f"its outputs are in {run.out_dir}")
    remote = provider.connect(machines[0])
    try:
        if not isinstance(remote, OpensTerminal):
            raise UsageError(f"cannot log in to machines of {run.provider}")
        yield remote
    finally:
        remote.close()
