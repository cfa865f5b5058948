"""Launch: controls the agent and the ranks below it, for the supervisor. Standard library only."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.records import read_json
from vastrun.onstart.optional_files import number_in
from vastrun.onstart.supervision.processes import kill_descendants, send, stop_signal_targets
from vastrun.onstart.supervision.progress import pid_of
from vastrun.onstart.supervision.rank_process import RankProcess, read_processes
from vastrun.onstart.supervision.restarts import Start
from vastrun.onstart.supervision.stacks import dump_recorders, dump_stacks


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

    def programs(self) -> dict[int, int]:
        """Map each rank that has not ended to the pid of the program that trains."""
        return {process.rank: pid_of(self.box, process) for process in self.running()}

    def ask_to_stop(self) -> None:
        """Send every rank SIGTERM once: its process, or the child of its shell, and the program that beats.

        The agent is frozen first: it would end the other ranks as soon as one has exited.
        """
        send(self.agent.pid, signal.SIGSTOP)
        programs = self.programs()
        for process in self.running():
            if process.rank not in self.stopping:
                self.stopping.add(process.rank)
                for pid in stop_signal_targets(process.pid) | {programs.get(process.rank, process.pid)}:
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
        programs = self.programs()
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


_QUERY = ("nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader")


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
