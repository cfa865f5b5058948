"""Shell on a job's node: files go over the shared disk, commands are run by the job itself."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vastrun.contract import layout
from vastrun.launcher.core import CommandResult, LocalProgram
from vastrun.launcher.core.errors import BoxError, GoneError, UnreachableError, UsageError
from vastrun.launcher.gate import caps
from vastrun.launcher.ports import Remote
from vastrun.launcher.providers.slurm.batch import ask_argv
from vastrun.launcher.providers.slurm.login_node import LoginNode
from vastrun.launcher.ssh.terminal import LOGIN_SHELL, login_argv

_ACCEPT_TIMEOUT_S = 15.0
"""Seconds for a job to accept a command, including the delay of NFS."""
_SLACK_S = 30.0
_FINALIZE_TIMEOUT_S = 120.0
_RESPONSE = re.compile(r"ended (\d{1,3})|late|silent")


@dataclass(frozen=True, kw_only=True)
class BoxLocation:
    """Location of a box."""

    root: str
    """Absolute path of its folder."""
    job: int | None
    """Id of its running job; None when that has ended."""


class SlurmRemote:
    """The Remote port for a job's box, which stays readable after the end of the job."""

    def __init__(
        self, inner: Remote, location: BoxLocation, node: LoginNode, is_over: Callable[[], bool]
    ) -> None:
        """`inner`: shell on the login node, in the box's folder. `is_over`: asks Slurm if the job ended."""
        self._inner, self._location, self._node, self._is_over = inner, location, node, is_over

    def __getattr__(self, name: str) -> Any:
        """Return further attributes of the login node's shell, such as its interruption."""
        if name.startswith("_") or name == "identity":
            raise AttributeError(name)
        return getattr(self._inner, name)

    def run(self, command: str, *, timeout_s: float) -> CommandResult:
        """Run a command on the job's node to its end; kill it after `timeout_s`."""
        if self._location.job is None:
            return self._inner.run(command, timeout_s=timeout_s)
        words = shlex.join(ask_argv(_ACCEPT_TIMEOUT_S, timeout_s, command))
        done = self._inner.run(words, timeout_s=2 * _ACCEPT_TIMEOUT_S + timeout_s + _SLACK_S)
        first, _, printed = done.stdout.partition("\n")
        response = _RESPONSE.fullmatch(first[: caps.SLURM_REPLY_CHARACTERS])
        if response is None:
            self._inner.read(layout.LEASE_STATE)  # raises GoneError when the box is gone
            raise BoxError(f"the job sent an unexpected response: {(first or done.stderr)[:60]!r}")
        if first == "late":
            raise UnreachableError(f"no answer within {timeout_s:g} s: {command}")
        if response[1] is None:
            raise self._silent_error()
        return CommandResult(exit_code=int(response[1]), stdout=printed, stderr=done.stderr)

    def terminal(self, command: str | None = None) -> LocalProgram:
        """Return a shell in the job's allocation; for an ended job, in its box on the shared disk."""
        self._inner.read(layout.LEASE_STATE)  # raises GoneError when the box is gone
        words = ["bash", "-c", command or LOGIN_SHELL]
        if self._location.job is not None:
            step = (
                "--overlap",
                f"--jobid={self._location.job}",
                "--ntasks=1",
                f"--chdir={self._location.root}",
            )
            words = ["srun", "--quiet", *step, *([] if command else ["--pty"]), *words]
        if self._node.address is None:
            return LocalProgram(argv=words, cwd=self._location.root, env=self._node.environment)
        login, address = self._node.login(), (self._node.address.host, self._node.address.port)
        line = f"exec bash -lc {shlex.quote('exec ' + shlex.join(words))}"
        argv = login_argv(login, address, self._location.root, line)
        return LocalProgram(argv=[word if word != "-T" or command else "-t" for word in argv])

    def tunnel(self, port: int, local_port: int) -> LocalProgram | None:
        """Raise UsageError: many sites only allow logins to nodes through Slurm."""
        del local_port
        hint = f"vastrun ssh RUN hostname names the node; then: ssh -L PORT:NODE:{port} LOGIN"
        raise UsageError("ports of a Slurm node are not forwarded", hint=hint)

    def put(self, local_path: str, path: str) -> None:
        """Upload the file into the box atomically."""
        self._inner.put(local_path, path)

    def write(self, path: str, content: bytes, *, mode: int = 0o600) -> None:
        """Write the bytes to a file in the box, as `put` does."""
        self._inner.write(path, content, mode=mode)

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        """Read up to `limit` bytes from `offset`."""
        return self._inner.read(path, offset=offset, limit=limit)

    def close(self) -> None:
        """Close the connection; the job keeps running."""
        self._inner.close()

    def finalize_killed_run(self) -> None:
        """Write the exit code and manifest of a killed run, which its job had no time to write.

        Raises UnreachableError while another process holds the lock of the run.
        """
        script = f"[ -e {layout.EXIT} ] || bash onstart/run.sh bury"
        done = self._inner.run(script, timeout_s=_FINALIZE_TIMEOUT_S)
        if not self._inner.read(layout.EXIT, limit=1):
            raise UnreachableError(f"the job has ended, but its run has not: {done.stderr.strip()[-200:]}")

    def _silent_error(self) -> UnreachableError | GoneError:
        if self._is_over():
            return UnreachableError("the job has ended")
        return UnreachableError("the job does not answer")
