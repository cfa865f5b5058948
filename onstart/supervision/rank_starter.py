"""Rank starter: starts the ranks of a training and waits for them. Standard library only.

Sets the variables of `torchrun` without torch: a user's program may use any version of it, or none. Like
torchrun, it ends all ranks once one has failed.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.run_module import module_command
from vastrun.onstart.nodes import RANKS_PORT, ThisNode

_KILL_AFTER_S = 30.0
"""Seconds between SIGTERM and SIGKILL, the same as torchrun's."""


@dataclass(frozen=True, kw_only=True)
class AgentFailure:
    """A rank that did not exit 0, as observed by the agent."""

    rank: int
    exit_code: int
    at: float


def start_ranks(job: Job, this_node: ThisNode, count: int, box: Path) -> tuple[AgentFailure, ...]:
    """Start `count` ranks on this node, wait until all have ended, and return those that failed first."""
    address, port = master_of(this_node)
    ranks = {
        rank: _start(
            rank_variables(job, this_node, count, local, box)
            | {"MASTER_ADDR": address, "MASTER_PORT": str(port)}
        )
        for local, rank in enumerate(this_node.ranks(count))
    }
    while all(rank.poll() in (None, 0) for rank in ranks.values()):
        if all(rank.returncode == 0 for rank in ranks.values()):
            return ()
        time.sleep(0.05)
    failures = tuple(
        AgentFailure(rank=rank, exit_code=process.returncode, at=time.time())
        for rank, process in ranks.items()
        if process.returncode
    )
    # SIGTERM, after a while SIGKILL, and wait until all have ended.
    running = [rank for rank in ranks.values() if rank.poll() is None]
    for rank in running:
        _signal(rank, signal.SIGTERM)
    deadline = time.monotonic() + _KILL_AFTER_S
    for rank in running:
        with suppress(subprocess.TimeoutExpired):
            rank.wait(max(0.0, deadline - time.monotonic()))
    for rank in running:
        if rank.poll() is None:
            _signal(rank, signal.SIGKILL)
            rank.wait()
    return failures


def rank_variables(job: Job, this_node: ThisNode, count: int, local: int, box: Path) -> dict[str, str]:
    """Return the variables that identify a rank, with torchrun's names."""
    rank = this_node.ranks(count)[local]
    world_size = count * this_node.nodes
    numbers = {
        "LOCAL_RANK": local,
        "RANK": rank,
        "GROUP_RANK": this_node.node,
        "ROLE_RANK": rank,
        "LOCAL_WORLD_SIZE": count,
        "WORLD_SIZE": world_size,
        "GROUP_WORLD_SIZE": this_node.nodes,
        "ROLE_WORLD_SIZE": world_size,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
    }
    return {
        **{name: str(number) for name, number in numbers.items()},
        "ROLE_NAME": "rank",
        "TORCHELASTIC_RUN_ID": job.run_id,
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        # Read by a main function with torch's decorator `record`.
        "TORCHELASTIC_ERROR_FILE": str(box / layout.RANKS / f"rank-{rank}.error.json"),
    }


def master_of(this_node: ThisNode) -> tuple[str, int]:
    """Return the address and the port at which rank 0 listens for the others."""
    if this_node.nodes > 1:
        # The first node may not reach itself under its public name.
        address = this_node.address if this_node.is_host else this_node.host
        return address, this_node.port + RANKS_PORT
    # Below the kernel's ephemeral range, from which any connection may take a port before rank 0 does.
    for port in random.sample(range(20_000, 32_000), 1000):
        with suppress(OSError), socket.create_server((this_node.address, port)):
            return this_node.address, port
    raise OSError(f"no free port from 20000 to 31999 of {this_node.address}")


def _start(variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    # -S: the watcher of a rank needs no packages, and starts sooner.
    command = (*module_command("vastrun.onstart.supervision.rank_process", "-S"), str(os.getpid()))
    return subprocess.Popen(command, env={**os.environ, **variables}, start_new_session=True)


def _signal(rank: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(rank.pid, number)
