"""Agents: the processes that start the ranks, one a start. Standard library only.

Each leaves a copy of itself behind for the next start (`launch_agent.py`): only the first imports
torch, and it may do so before its turn: a rented GPU waits for packages, code and data anyway. A supervisor
that was started early reads a line from its stdin when it is its turn. Until then it writes no evidence, and
ends with whoever started it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.run_module import module_command
from vastrun.trainer.distributed.nodes import this_node_of
from vastrun.trainer.supervision.launch import Agent, Launch, make_folders, spare_of
from vastrun.trainer.supervision.launch_agent import LaunchOrder
from vastrun.trainer.supervision.processes import die_with_parent, outlive_parent, send
from vastrun.trainer.supervision.restarts import Start
from vastrun.trainer.supervision.watch import environment_of

TURN = "VASTRUN_TURN"
"""The environment variable with the process that says when; without it, it is this supervisor's turn."""

_READ_LATE = "NCCL_"
"""Variables that count when ranks begin to talk, not when torch is imported: the preflight sets them late."""
_ENDS_WITHIN_S = 5.0
"""An agent that was killed is not waited for any longer."""
_F_SETPIPE_SZ = 1031
"""Command of linux/fcntl.h: Python 3.9 has no name for it."""
_ROOM = 1 << 20
"""For an order that nobody reads yet: the environment of a container may be large."""


@dataclass(kw_only=True)
class Agents:
    """Starts group after group of ranks."""

    _first: subprocess.Popen[bytes] | None = None
    """Whose stdin the copies read, too."""
    _loading: dict[str, str] | None = None
    """The environment of the first while it has no order yet."""

    def prepare(self, box: Path, env: Mapping[str, str]) -> None:
        """Have the first agent import what it needs; its order comes with `begin`."""
        make_folders(box)
        self._start(box, env)
        self._loading = dict(env)

    def begin(self, box: Path, world_size: int, env: Mapping[str, str]) -> Launch:
        """Begin to start the ranks, by an agent in a session of its own."""
        make_folders(box)
        agent = self._prepared(env) or self._spare(box) or self._start(box, env)
        order = LaunchOrder(world_size=world_size, env=dict(env))
        assert self._first is not None and self._first.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # an agent that has ended is seen by whoever watches it
            self._first.stdin.write(json.dumps(asdict(order)).encode() + b"\n")
            self._first.stdin.flush()
        return Launch(box=box, world_size=world_size, agent=agent)

    def _prepared(self, env: Mapping[str, str]) -> Agent | None:
        """The agent that was started early, unless it has ended or loaded under another environment."""
        first, loading, self._loading = self._first, self._loading, None
        if first is None or loading is None:
            return None
        changed = {name for name in {*loading, *env} if loading.get(name) != env.get(name)}
        if first.poll() is None and all(name.startswith(_READ_LATE) for name in changed):
            return first
        first.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # a driver that hangs keeps it from ending
            first.wait(_ENDS_WITHIN_S)
        self._first = None
        return None

    def _spare(self, box: Path) -> Agent | None:
        pid = spare_of(box)
        spare = None if self._first is None or pid is None else _Adopted(pid)
        return spare if spare is not None and spare.poll() is None else None

    def _start(self, box: Path, env: Mapping[str, str]) -> Agent:
        with (box / layout.AGENT_LOG).open("ab") as log:
            self._first = subprocess.Popen(
                [*module_command("vastrun.trainer.supervision.launch_agent"), str(os.getpid())],
                cwd=box,
                env=dict(env),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        assert self._first.stdin is not None
        with contextlib.suppress(OSError):  # more than this user may have
            fcntl.fcntl(self._first.stdin, _F_SETPIPE_SZ, _ROOM)
        return self._first


class _Adopted:
    """A copy that an agent left. It became a child of this process when the agent ended."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            try:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # it ended long ago
                self._code = -signal.SIGKILL
            else:
                self._code = os.waitstatus_to_exitcode(status) if ended else None
        return self._code

    def kill(self) -> None:
        send(self.pid, signal.SIGKILL)


def await_turn(box: Path, agents: Agents) -> None:
    """Have the launch agent load; return when it is this supervisor's turn."""
    die_with_parent(int(os.environ.pop(TURN)))
    job = Job.read(box)
    this_node = this_node_of(job.nodes, os.environ)
    agents.prepare(box, environment_of(box, job, Start(world_size=job.ranks), this_node))
    if not os.read(0, 1):
        sys.exit("nobody is left who could say when it is this supervisor's turn")
    outlive_parent()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
