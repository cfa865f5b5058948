"""Launch agent: starts the ranks and records how each ended.

Ranks of the onboard trainer are started through torch's launcher API; those of a user's program without torch
(`rank_starter.py`), since it may use any version of torch, or none.

`run_module.py vastrun.trainer.supervision.launch_agent SUPERVISOR` reads its request from stdin. Before it
starts the ranks it forks: the copy, which has torch imported already, waits for the next request, so that the
next start takes less time. For the onboard trainer it also imports the modules of the ranks, which are forks
of it (`fork_server.py`). The supervisor, which does not import torch, reads `run/ranks/agent.json`.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, cast

from vastrun.contract import layout
from vastrun.contract.job import Job, wandb_mode
from vastrun.contract.records import read_json, write_atomically, write_json
from vastrun.trainer.distributed.nodes import ThisNode, this_node_of
from vastrun.trainer.supervision.processes import die_with_parent
from vastrun.trainer.supervision.rank_starter import AgentFailure, start_ranks
from vastrun.trainer.telemetry.garbage import importing

if TYPE_CHECKING:
    from torch.distributed.launcher.api import LaunchConfig

_RENDEZVOUS_S = 60
_CHUNK = 1 << 16
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


@dataclass(frozen=True, kw_only=True)
class AgentRecord:
    """The ends of all ranks; those not listed exited 0."""

    at: float
    world_size: int
    failures: tuple[AgentFailure, ...] = field(default=())


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """The supervisor's request to start ranks."""

    world_size: int
    env: Mapping[str, str]
    """Environment of the agent and of the ranks below it."""


def main() -> NoReturn:
    """Start the ranks and exit when all have ended: with 0 when all exited 0."""
    supervisor = int(sys.argv[1])
    die_with_parent(supervisor)
    job = Job.read(_box())
    _load(job)
    request = _next_request()
    while (copy := os.fork()) == 0:
        request = _next_request()
    die_with_parent(supervisor)
    _apply_request(request, copy)
    if job.train is not None:
        from vastrun.trainer.supervision.preload import serve_ranks

        serve_ranks()
    failures = _run_ranks(job, request.world_size, _box())
    record = AgentRecord(at=time.time(), world_size=request.world_size, failures=failures)
    write_json(_box() / layout.AGENT, asdict(record))
    sys.stderr.flush()
    os._exit(1 if failures else 0)  # the teardown of torch takes half a second and may abort


def _load(job: Job) -> None:
    """Import the modules of this agent, its copies and the ranks; for a user's program nothing."""
    if job.train is None:
        return
    from vastrun.trainer.supervision.preload import load

    load(wandb=wandb_mode(job.train.wandb.mode, os.environ) != "off")
    with importing():
        import torch.distributed.launcher.api  # noqa: F401


def _next_request() -> LaunchRequest:
    """Wait for the next request; exit when the supervisor is gone."""
    line = b""
    while not line.endswith(b"\n"):
        more = os.read(0, _CHUNK)
        if not more:
            os._exit(0)
        line += more
    return cast(LaunchRequest, read_json(LaunchRequest, line))


def _apply_request(request: LaunchRequest, copy: int) -> None:
    """Make this process the agent of a new start; `copy` is the agent of the next one."""
    os.environ.clear()
    os.environ.update(request.env)
    importlib.invalidate_caches()  # folders were added since, for instance the user's code
    if os.getpgrp() != os.getpid():  # a copy
        os.setpgid(0, 0)
    null, log = os.open(os.devnull, os.O_RDONLY), os.open(_box() / layout.AGENT_LOG, _APPEND)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    write_atomically(_box() / layout.SPARE_AGENT, str(copy), durable=False)
    logging.disable(logging.ERROR)  # torch logs each end in three lines, the supervisor in one


def _box() -> Path:
    return Path(os.environ["VASTRUN_BOX"])


def _run_ranks(job: Job, count: int, box: Path) -> tuple[AgentFailure, ...]:
    this_node = this_node_of(job.nodes, os.environ)
    if job.train is None:
        return start_ranks(job, this_node, count, box)
    return _run_training_ranks(job, this_node, count, box)


def _run_training_ranks(job: Job, this_node: ThisNode, count: int, box: Path) -> tuple[AgentFailure, ...]:
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch

    config = launch_config(job, this_node, count, log_dir=str(box / layout.RANKS / "elastic"))
    # -S: the watcher of a rank needs no packages, and starts sooner. -P: no file next to it hides a module.
    program = ("-S", "-P", "-m", "vastrun.trainer.supervision.rank_process", str(os.getpid()))
    try:
        elastic_launch(config, sys.executable)(*program)
    except ChildFailedError as error:
        first_rank = this_node.ranks(count).start if job.is_diloco else 0
        return tuple(
            AgentFailure(
                rank=first_rank + rank,
                exit_code=f.exitcode,
                at=float(f.timestamp),
                message=str(f.message)[-2000:],
            )
            for rank, f in sorted(error.failures.items())
        )
    return ()


def launch_config(job: Job, this_node: ThisNode, count: int, *, log_dir: str) -> LaunchConfig:
    """Return the options with which torch's launcher starts `count` ranks here and on every other node."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.launcher.api import LaunchConfig

    from vastrun.trainer.distributed.rendezvous import ORDERED_BACKEND, SINGLE_NODE_BACKEND

    # Agents of diloco nodes have no rendezvous: a node may leave, and torch's wait for each other at the end.
    nodes = 1 if job.is_diloco else this_node.nodes
    return LaunchConfig(
        min_nodes=nodes,
        max_nodes=nodes,
        nproc_per_node=count,
        run_id=job.run_id,
        role="rank",
        rdzv_backend=SINGLE_NODE_BACKEND if nodes == 1 else ORDERED_BACKEND,
        rdzv_endpoint=this_node.endpoint,
        rdzv_configs={
            "join_timeout": _RENDEZVOUS_S,
            "is_host": this_node.is_host,
            "node": this_node.node,
            "apart": job.is_diloco,
        },
        local_addr=this_node.address,
        max_restarts=0,  # the supervisor starts another agent: a restart needs a new store
        logs_specs=DefaultLogsSpecs(log_dir=log_dir),
    )


if __name__ == "__main__":
    main()
