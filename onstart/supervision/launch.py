"""Launch: starts the agents, which start the ranks, and controls both, for the supervisor.

There is one agent per start. Each leaves a copy of itself for the next start (`launch_agent.py`): only the
first imports torch, and it may do so early, while the machine still waits for packages, code and data. A
supervisor that was started early reads a line from its stdin as its start signal. Until then it writes no
evidence, and ends with its parent. Standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.records import read_json
from vastrun.onstart.nodes import ThisNode, network_environment, this_node_of
from vastrun.onstart.optional_files import number_in
from vastrun.onstart.run_module import module_command
from vastrun.onstart.supervision.environment import rank_environment
from vastrun.onstart.supervision.launch_agent import COUNT
from vastrun.onstart.supervision.processes import (
    die_with_parent,
    kill_descendants,
    outlive_parent,
    send,
    start_logged,
    stop_signal_targets,
)
from vastrun.onstart.supervision.progress import pid_of
from vastrun.onstart.supervision.rank_process import RankProcess, read_processes
from vastrun.onstart.supervision.restarts import Start
from vastrun.onstart.supervision.stacks import dump_recorders, dump_stacks

_EARLY_START = "VASTRUN_TURN"
"""Environment variable with the pid of the parent that sends the start signal; unset: start at once."""
_LATE_PREFIX = "NCCL_"
"""Prefix of variables that NCCL reads at its first message, not when torch is imported: the preflight sets
them after an early start."""
_PIPE_BYTES = 1 << 20
"""Bytes of the pipe, enough for an unread request: the environment of a container may be large."""
_QUERY = ("nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader")


@dataclass(kw_only=True)
class Agents:
    """Starts the agent of each start of the ranks."""

    _first: subprocess.Popen[bytes] | None = None
    """The first agent; its copies read from the same stdin."""
    _loading_env: dict[str, str] | None = None
    """Environment of the first agent while it has no request yet."""

    def wait_for_start_signal(self, box: Path) -> None:
        """In a supervisor that was started early, start the first agent, and return at the start signal.

        The agent imports its modules meanwhile; `begin` sends its request.
        """
        if _EARLY_START not in os.environ:
            return
        die_with_parent(int(os.environ.pop(_EARLY_START)))
        make_folders(box)
        job = Job.read(box)
        this_node = this_node_of(job.nodes, os.environ)
        self._loading_env = environment_of(box, job, Start(world_size=job.ranks), this_node)
        self._start(box, self._loading_env)
        if not os.read(0, 1):
            sys.exit("the process that sends the start signal is gone")
        outlive_parent()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)

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


class AdoptedAgent:
    """The copy that an agent left. It became a child of this process when the agent ended."""

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


@dataclass(kw_only=True)
class Launch:
    """The running ranks."""

    box: Path
    world_size: int
    agent: subprocess.Popen[bytes] | AdoptedAgent
    stopping: set[int] = field(default_factory=set)
    """Ranks that received SIGTERM for a stop."""
    killed: set[int] = field(default_factory=set)
    """Ranks that were killed, or dumped their stacks, which kills some."""

    def processes(self) -> tuple[RankProcess, ...]:
        """List the ranks started so far."""
        return read_processes(self.box)

    def running(self) -> list[RankProcess]:
        """List the ranks that have not ended."""
        return [process for process in self.processes() if process.exit_code is None]

    def ask_to_stop(self) -> None:
        """Send every rank SIGTERM once: its process, or the child of its shell, and the program that beats.

        The agent is frozen first: it would end the other ranks as soon as one has exited.
        """
        send(self.agent.pid, signal.SIGSTOP)
        for process in self.running():
            if process.rank not in self.stopping:
                self.stopping.add(process.rank)
                for pid in stop_signal_targets(process.pid) | {pid_of(self.box, process)}:
                    send(pid, signal.SIGTERM)

    def kill_ranks(self) -> None:
        """Kill the remaining ranks; their ends are still recorded."""
        for process in self.running():
            self.killed.add(process.rank)
            send(process.pid, signal.SIGKILL)

    def dump_stacks(self, *, within_s: float) -> tuple[str, ...]:
        """Write the stacks of all ranks and return the files, relative to the box. Some ranks do not survive.

        With NCCL, each rank first records its current collectives.
        """
        send(self.agent.pid, signal.SIGSTOP)
        programs = {process.rank: pid_of(self.box, process) for process in self.running()}
        dump_recorders(self.box, programs, within_s=within_s)
        self.killed.update(programs)
        return dump_stacks(self.box, programs, within_s=within_s)

    def end(self, *, within_s: float) -> tuple[RankProcess, ...]:
        """End all processes of the launch. Return its ranks, with the ends that only the agent saw."""
        deadline = time.monotonic() + within_s
        if len(self.processes()) == self.world_size:  # else it would start more ranks
            send(self.agent.pid, signal.SIGCONT)
        else:
            self.agent.kill()
        while self.agent.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        spare = number_in(self.box / layout.SPARE_AGENT)
        kill_descendants(within_s=5.0, exclude=None if spare == self.agent.pid else spare)
        ranks = {process.rank: process for process in self.processes()}
        with contextlib.suppress(OSError, ValueError):  # it wrote no record
            text = (self.box / layout.AGENT).read_text(encoding="utf-8")
            for failure in read_json(tuple[RankProcess, ...], text):
                process = ranks.setdefault(failure.rank, failure)
                if process.exit_code is None:
                    ended = replace(process, exit_code=failure.exit_code, ended_at=failure.ended_at)
                    ranks[failure.rank] = ended
        return tuple(ranks.values())


def environment_of(box: Path, job: Job, start: Start, this_node: ThisNode) -> dict[str, str]:
    """Return the environment of the ranks, derived from this process's."""
    return rank_environment(job, start, box, {**os.environ, **network_environment(this_node)})


def make_folders(box: Path) -> None:
    """Create the folders that ranks write to."""
    own = (layout.RAW_LOGS, layout.RANKS, layout.STACKS, layout.FLIGHT_RECORDER, layout.RECORDER_PIPES)
    for folder in (*own, layout.OUTPUTS):
        (box / folder).mkdir(parents=True, exist_ok=True)


def archive_start(box: Path, number: int) -> None:
    """Move the files of start `number` of the ranks to a separate folder."""
    folder = box / layout.STARTS / str(number)
    folder.mkdir(parents=True)
    for name in (
        layout.HEARTBEATS,
        layout.RANKS,
        layout.RAW_LOGS,
        layout.STACKS,
        layout.FLIGHT_RECORDER,
        layout.PLAN,
        layout.FINAL,
        layout.STAGE,
    ):
        with contextlib.suppress(FileNotFoundError):
            (box / name).rename(folder / Path(name).name)


def first_start(box: Path, world_size: int) -> Start:
    """Return the first start, or the next one of a box whose container was stopped meanwhile."""
    if not read_processes(box):
        return Start(world_size=world_size)
    number = len(list((box / layout.STARTS).glob("*")))
    archive_start(box, number)
    return Start(number=number + 1, world_size=world_size)


def healthy_gpus(env: Mapping[str, str] = os.environ) -> tuple[str, ...] | None:
    """Return the UUIDs of the GPUs that the ranks may use and that respond; None when unknown."""
    try:
        done = subprocess.run(
            _QUERY, env=dict(env), capture_output=True, text=True, timeout=30.0, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # A GPU that has fallen off the bus is missing, or has a line of another form.
    answers = [line.split(", ") for line in done.stdout.splitlines()]
    gpus = {index: uuid for index, uuid in (a for a in answers if len(a) == 2) if uuid.startswith("GPU-")}
    if done.returncode and not gpus:
        return None
    visible = env.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return tuple(gpus.values())
    requested = [name.strip() for name in visible.split(",")]
    return tuple(uuid for index, uuid in gpus.items() if index in requested or uuid in requested)
