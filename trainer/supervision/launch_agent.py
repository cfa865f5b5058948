"""The launch agent: starts the ranks and records how each ended.

Ranks of the onboard trainer are started through torch's launcher API; those of a user's program without torch
(`rank_starter.py`), of which it may use any version, or none.

`run_module.py vastrun.trainer.supervision.launch_agent SUPERVISOR`, with its order on stdin. Before it
carries that out it forks: the copy, which has torch imported already, waits for the next order, so that the
next start takes less time. For the onboard trainer it imports what ranks need, too: ranks are copies of it
(`fork_server.py`). The supervisor, which knows no torch, reads `run/ranks/agent.json`.
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
from vastrun.contract.job import Job
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
    """All ranks ended; those not named here exited 0."""

    at: float
    world_size: int
    failures: tuple[AgentFailure, ...] = field(default=())


@dataclass(frozen=True, kw_only=True)
class LaunchOrder:
    """What an agent is to start."""

    world_size: int
    env: Mapping[str, str]
    """Of the agent and of the ranks below it."""


def main() -> NoReturn:
    """Start the ranks and leave when all have ended: with 0 when all exited 0."""
    supervisor = int(sys.argv[1])
    die_with_parent(supervisor)
    job = Job.read(_box())
    _load(job)
    order = _next_order()
    while (copy := os.fork()) == 0:
        order = _next_order()
    die_with_parent(supervisor)
    _begin(order, copy)
    if job.train is not None:
        from vastrun.trainer.supervision.preload import serve_ranks

        serve_ranks()
    failures = _run_ranks(job, order.world_size, _box())
    record = AgentRecord(at=time.time(), world_size=order.world_size, failures=failures)
    write_json(_box() / layout.AGENT, asdict(record))
    sys.stderr.flush()
    os._exit(1 if failures else 0)  # taking torch down again would cost half a second and may abort


def _load(job: Job) -> None:
    """Import now what this agent, its copies and the ranks need; for a user's program nothing."""
    if job.train is None:
        return
    from vastrun.trainer.supervision.preload import load

    load(wandb=job.train.wandb.mode != "off")
    with importing():
        import torch.distributed.launcher.api  # noqa: F401


def _next_order() -> LaunchOrder:
    """Wait for it; when the supervisor is gone there is none, and nothing to wait for."""
    line = b""
    while not line.endswith(b"\n"):
        more = os.read(0, _CHUNK)
        if not more:
            os._exit(0)
        line += more
    return cast(LaunchOrder, read_json(LaunchOrder, line))


def _begin(order: LaunchOrder, copy: int) -> None:
    """Make this process the agent of a new start; `copy` is that of the one after it."""
    os.environ.clear()
    os.environ.update(order.env)
    importlib.invalidate_caches()  # folders may have come since, as that of the user's code
    if os.getpgrp() != os.getpid():  # a copy
        os.setpgid(0, 0)
    nothing, log = os.open(os.devnull, os.O_RDONLY), os.open(_box() / layout.AGENT_LOG, _APPEND)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    write_atomically(_box() / layout.SPARE_AGENT, str(copy), durable=False)
    logging.disable(logging.ERROR)  # torch tells each end in three lines, the supervisor in one


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
    # -S: what holds a rank needs no packages, and starts sooner. -P: no file beside it hides a module.
    program = ("-S", "-P", "-m", "vastrun.trainer.supervision.rank_process", str(os.getpid()))
    try:
        elastic_launch(config, sys.executable)(*program)
    except ChildFailedError as error:
        before = this_node.ranks(count).start if job.is_diloco else 0
        return tuple(
            AgentFailure(
                rank=before + rank,
                exit_code=f.exitcode,
                at=float(f.timestamp),
                message=str(f.message)[-2000:],
            )
            for rank, f in sorted(error.failures.items())
        )
    return ()


def launch_config(job: Job, this_node: ThisNode, count: int, *, log_dir: str) -> LaunchConfig:
    """Say how torch's launcher starts `count` ranks here, and as many on every other node."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.launcher.api import LaunchConfig

    from vastrun.trainer.distributed.rendezvous import ALONE, IN_ORDER

    # Agents of nodes that train apart do not meet: one may come while the others train.
    nodes = 1 if job.is_diloco else this_node.nodes
    return LaunchConfig(
        min_nodes=nodes,
        max_nodes=nodes,
        nproc_per_node=count,
        run_id=job.run_id,
        role="rank",
        rdzv_backend=ALONE if nodes == 1 else IN_ORDER,
        rdzv_endpoint=this_node.endpoint,
        rdzv_configs={
            "join_timeout": _RENDEZVOUS_S,
            "is_host": this_node.is_host,
            "node": this_node.node,
            "apart": job.is_diloco,
        },
        local_addr=this_node.address,
        max_restarts=0,  # the supervisor starts another agent: ranks that meet again need another store
        logs_specs=DefaultLogsSpecs(log_dir=log_dir),
    )


if __name__ == "__main__":
    main()
