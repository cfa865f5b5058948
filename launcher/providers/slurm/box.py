"""A shell on the node of a job: files by the shared disk, commands by the job itself."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vastrun.contract import layout
from vastrun.launcher.core import Completed, LocalProgram
from vastrun.launcher.core.errors import BoxError, GoneError, UnreachableError, UsageError
from vastrun.launcher.gate import caps
from vastrun.launcher.ports import Remote
from vastrun.launcher.providers.slurm.batch import ask_argv
from vastrun.launcher.providers.slurm.login_node import LoginNode
from vastrun.launcher.ssh.terminal import LOGIN_SHELL, login_argv

_TAKE_S = 15.0
"""A job takes what it is asked for within this, by an NFS that shows it late, too."""
_SLACK_S = 30.0
_BURY_S = 120.0
_ANSWER = re.compile(r"ended (\d{1,3})|late|silent")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a box is."""

    root: str
    """Its folder, absolute."""
    job: int | None
    """The job that has a node for it; None: that is over."""


class SlurmRemote:
    """`Remote` says what each verb promises. What a job that is over has left can still be read."""

    def __init__(self, inner: Remote, place: Place, node: LoginNode, is_over: Callable[[], bool]) -> None:
        """`inner`: a shell on the login node, in the box's folder. `is_over`: asks Slurm about the job."""
        self._inner, self._place, self._node, self._is_over = inner, place, node, is_over

    def __getattr__(self, name: str) -> Any:
        """What the shell on the login node can do besides: say how it knows that, be interrupted."""
        if name.startswith("_") or name == "identity":
            raise AttributeError(name)
        return getattr(self._inner, name)

    def run(self, command: str, *, timeout_s: float) -> Completed:
        """Run a command on the job's node to its end. What is left of it after `timeout_s` is killed."""
        if self._place.job is None:
            return self._inner.run(command, timeout_s=timeout_s)
        words = shlex.join(ask_argv(_TAKE_S, timeout_s, command))
        done = self._inner.run(words, timeout_s=2 * _TAKE_S + timeout_s + _SLACK_S)
        first, _, printed = done.stdout.partition("\n")
        answer = _ANSWER.fullmatch(first[: caps.SLURM_REPLY_CHARACTERS])
        if answer is None:
            self._inner.read(layout.LEASE_STATE)  # which says so where the box is gone
            raise BoxError(f"the job sent an unexpected response: {(first or done.stderr)[:60]!r}")
        if first == "late":
            raise UnreachableError(f"no answer within {timeout_s:g} s: {command}")
        if answer[1] is None:
            raise self._silence()
        return Completed(exit_code=int(answer[1]), stdout=printed, stderr=done.stderr)

    def terminal(self, command: str | None = None) -> LocalProgram:
        """Return a shell on the job's node, in its allocation; of a job that is over, in what it left."""
        self._inner.read(layout.LEASE_STATE)  # the box is there
        words = ["bash", "-c", command or LOGIN_SHELL]
        if self._place.job is not None:
            step = ("--overlap", f"--jobid={self._place.job}", "--ntasks=1", f"--chdir={self._place.root}")
            words = ["srun", "--quiet", *step, *([] if command else ["--pty"]), *words]
        if self._node.address is None:
            return LocalProgram(argv=words, cwd=self._place.root, env=self._node.environment)
        login, address = self._node.login(), (self._node.address.host, self._node.address.port)
        line = f"exec bash -lc {shlex.quote('exec ' + shlex.join(words))}"
        argv = login_argv(login, address, self._place.root, line)
        return LocalProgram(argv=[word if word != "-T" or command else "-t" for word in argv])

    def tunnel(self, port: int, local_port: int) -> LocalProgram | None:
        """Raise UsageError: many sites let nobody log in to a node but by Slurm."""
        del local_port
        hint = f"vastrun ssh RUN hostname names the node; then: ssh -L PORT:NODE:{port} LOGIN"
        raise UsageError("ports of a Slurm node are not forwarded", hint=hint)

    def put(self, local_path: str, path: str) -> None:
        """Put the file into the box, whole."""
        self._inner.put(local_path, path)

    def write(self, path: str, content: bytes, *, mode: int = 0o600) -> None:
        """Put bytes from memory into a file, as `put`."""
        self._inner.write(path, content, mode=mode)

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        """Read up to `limit` bytes from `offset`."""
        return self._inner.read(path, offset=offset, limit=limit)

    def close(self) -> None:
        """Close the connection; the job goes on."""
        self._inner.close()

    def bury(self) -> None:
        """Have what a job left be listed for collecting, when nobody on its node could.

        Raises UnreachableError while a lock says that somebody is at work there.
        """
        script = f"[ -e {layout.EXIT} ] || bash onstart/run.sh bury"
        done = self._inner.run(script, timeout_s=_BURY_S)
        if not self._inner.read(layout.EXIT, limit=1):
            raise UnreachableError(f"the job is over, and its run is not: {done.stderr.strip()[-200:]}")

    def _silence(self) -> UnreachableError | GoneError:
        if self._is_over():
            return UnreachableError("the job is over")
        return UnreachableError("the job does not answer")
