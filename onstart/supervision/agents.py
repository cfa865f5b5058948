"""Agents: start the processes that start the ranks, one per start. Standard library only.

Each leaves a copy of itself for the next start (`launch_agent.py`): only the first imports torch, and it may
do so early, while the machine still waits for packages, code and data. A supervisor that was started early
reads a line from its stdin as its start signal. Until then it writes no evidence, and ends with its parent.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.onstart.nodes import this_node_of
from vastrun.onstart.optional_files import number_in
from vastrun.onstart.run_module import module_command
from vastrun.onstart.supervision.launch import AdoptedAgent, Launch, make_folders
from vastrun.onstart.supervision.launch_agent import COUNT
from vastrun.onstart.supervision.processes import die_with_parent, outlive_parent, start_logged
from vastrun.onstart.supervision.restarts import Start
from vastrun.onstart.supervision.watch import environment_of

EARLY_START = "VASTRUN_TURN"
"""Environment variable with the pid of the parent that sends the start signal; unset: start at once."""

_LATE_PREFIX = "NCCL_"
"""Prefix of variables that NCCL reads at its first message, not when torch is imported: the preflight sets
them after an early start."""
_PIPE_BYTES = 1 << 20
"""Bytes of the pipe, enough for an unread request: the environment of a container may be large."""


@dataclass(kw_only=True)
class Agents:
    """Starts the agent of each start of the ranks."""

    _first: subprocess.Popen[bytes] | None = None
    """The first agent; its copies read from the same stdin."""
    _loading_env: dict[str, str] | None = None
    """Environment of the first agent while it has no request yet."""

    def prepare(self, box: Path, env: Mapping[str, str]) -> None:
        """Start the first agent, which imports its modules; `begin` sends its request."""
        make_folders(box)
        self._start(box, env)
        self._loading_env = dict(env)

    def begin(self, box: Path, world_size: int, env: Mapping[str, str]) -> Launch:
        """Send an agent, which has its own session, the request to start the ranks."""
        make_folders(box)
        agent = self._prepared(env) or self._spare(box) or self._start(box, env)
        assert self._first is not None and self._first.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the caller's watch sees an agent that has ended
            self._first.stdin.write(json.dumps({**env, COUNT: str(world_size)}).encode() + b"\n")
            self._first.stdin.flush()
        return Launch(box=box, world_size=world_size, agent=agent)

    def _prepared(self, env: Mapping[str, str]) -> subprocess.Popen[bytes] | None:
        """Return the agent that was started early, unless it ended or loaded with another environment."""
        first, loading_env, self._loading_env = self._first, self._loading_env, None
        if first is None or loading_env is None:
            return None
        changed = {name for name in {*loading_env, *env} if loading_env.get(name) != env.get(name)}
        if first.poll() is None and all(name.startswith(_LATE_PREFIX) for name in changed):
            return first
        first.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # a driver that hangs keeps it from ending
            first.wait(5.0)
        self._first = None
        return None

    def _spare(self, box: Path) -> AdoptedAgent | None:
        """Return the copy that the last agent left, unless it has ended."""
        pid = number_in(box / layout.SPARE_AGENT)
        spare = None if self._first is None or pid is None else AdoptedAgent(pid)
        return spare if spare is not None and spare.poll() is None else None

    def _start(self, box: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        command = (*module_command("vastrun.onstart.supervision.launch_agent"), str(os.getpid()))
        self._first = start_logged(command, box / layout.AGENT_LOG, env, cwd=box, stdin=subprocess.PIPE)
        assert self._first.stdin is not None
        with contextlib.suppress(OSError):  # above the limit of this user
            fcntl.fcntl(self._first.stdin, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        return self._first


def wait_for_start_signal(box: Path, agents: Agents) -> None:
    """Start the launch agent early; return at the start signal."""
    die_with_parent(int(os.environ.pop(EARLY_START)))
    job = Job.read(box)
    this_node = this_node_of(job.nodes, os.environ)
    agents.prepare(box, environment_of(box, job, Start(world_size=job.ranks), this_node))
    if not os.read(0, 1):
        sys.exit("the process that sends the start signal is gone")
    outlive_parent()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
