"""Launch: the agent and the ranks below it, as the supervisor holds them. Standard library only."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast

from vastrun.contract import layout
from vastrun.contract.records import read_json
from vastrun.trainer.supervision.launch_agent import AgentRecord
from vastrun.trainer.supervision.processes import hear_of_a_stop, kill_descendants, send
from vastrun.trainer.supervision.progress import pid_of
from vastrun.trainer.supervision.rank_process import RankProcess, read_processes
from vastrun.trainer.supervision.stacks import dump_recorders, dump_stacks

_POLL_S = 0.05
_KILL_S = 5.0
_OF_ONE_START = (
    layout.HEARTBEATS,
    layout.RANKS,
    layout.RAW_LOGS,
    layout.STACKS,
    layout.FLIGHT_RECORDER,
    layout.PLAN,
    layout.FINAL,
)


class Agent(Protocol):
    """The process that started the ranks, and waits for them."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """Return its exit code, or minus the signal that ended it; None while it runs."""
        ...

    def kill(self) -> None: ...


@dataclass(kw_only=True)
class Launch:
    """The running ranks."""

    box: Path
    world_size: int
    agent: Agent
    asked: set[int] = field(default_factory=set)
    """Ranks that were asked to stop."""
    killed: set[int] = field(default_factory=set)
    """Ranks that were killed, or asked for their stack, which kills some."""

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
        """Send every rank SIGTERM once: its process, or what that waits for, and the program that beats.

        The agent is frozen first: it would end the others as soon as one has left.
        """
        self.freeze()
        programs = self.programs()
        for process in self.running():
            if process.rank not in self.asked:
                self.asked.add(process.rank)
                for pid in hear_of_a_stop(process.pid) | {programs.get(process.rank, process.pid)}:
                    send(pid, signal.SIGTERM)

    def freeze(self) -> None:
        """Keep the agent from doing anything until the ranks were killed or ended."""
        send(self.agent.pid, signal.SIGSTOP)

    def kill_ranks(self) -> None:
        """Kill the ranks that are left; how they ended is still recorded."""
        for process in self.running():
            self.killed.add(process.rank)
            send(process.pid, signal.SIGKILL)

    def dump_stacks(self, *, within_s: float) -> tuple[str, ...]:
        """Write stacks of all ranks, to files relative to the box. Some ranks do not survive it.

        With NCCL, each has told before which collectives it was in.
        """
        self.freeze()
        programs = self.programs()
        dump_recorders(self.box, programs, within_s=within_s)
        self.killed.update(programs)
        return dump_stacks(self.box, programs, within_s=within_s)

    def end(self, *, within_s: float) -> AgentRecord | None:
        """End all of the launch. Returns what the agent recorded, if it still could."""
        deadline = time.monotonic() + within_s
        if len(self.processes()) == self.world_size:  # else it would go on starting ranks
            send(self.agent.pid, signal.SIGCONT)
        else:
            self.agent.kill()
        while self.agent.poll() is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        spare = spare_of(self.box)
        kill_descendants(within_s=_KILL_S, but=None if spare == self.agent.pid else spare)
        return _agent_record(self.box)


def make_folders(box: Path) -> None:
    """Make the folders that ranks write into."""
    own = (layout.RAW_LOGS, layout.RANKS, layout.STACKS, layout.FLIGHT_RECORDER, layout.RECORDER_PIPES)
    for folder in (*own, layout.OUTPUTS):
        (box / folder).mkdir(parents=True, exist_ok=True)


def put_aside(box: Path, number: int) -> None:
    """Move what the ranks of start `number` wrote of themselves to a folder of its own."""
    folder = box / layout.STARTS / str(number)
    folder.mkdir(parents=True)
    for name in _OF_ONE_START:
        with contextlib.suppress(FileNotFoundError):
            (box / name).rename(folder / Path(name).name)


def spare_of(box: Path) -> int | None:
    """Return the process that waits to be the next agent, as the last one left its number."""
    with contextlib.suppress(OSError, ValueError):
        return int((box / layout.SPARE_AGENT).read_text(encoding="ascii"))
    return None


def _agent_record(box: Path) -> AgentRecord | None:
    try:
        text = (box / layout.AGENT).read_text(encoding="utf-8")
        return cast(AgentRecord, read_json(AgentRecord, text))
    except (OSError, ValueError):
        return None


_QUERY = ("nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader")
_WITHIN_S = 30.0


def healthy_gpus(env: Mapping[str, str] = os.environ) -> tuple[str, ...] | None:
    """Return the UUIDs of the GPUs that the ranks may use and that answer; None when that cannot be told."""
    try:
        done = subprocess.run(
            _QUERY, env=dict(env), capture_output=True, text=True, timeout=_WITHIN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # One that has fallen off the bus is left out, or is a line of another form.
    answers = [line.split(", ") for line in done.stdout.splitlines()]
    gpus = {index: uuid for index, uuid in (a for a in answers if len(a) == 2) if uuid.startswith("GPU-")}
    if done.returncode and not gpus:
        return None
    visible = env.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return tuple(gpus.values())
    asked = [name.strip() for name in visible.split(",")]
    return tuple(uuid for index, uuid in gpus.items() if index in asked or uuid in asked)
