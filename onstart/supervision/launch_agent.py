"""Launch agent: starts the ranks and records how each ended.

`run_module.py vastrun.onstart.supervision.launch_agent SUPERVISOR` reads its request from stdin. Before it
starts the ranks it forks: the copy, which has torch imported already, waits for the next request, so that the
next start takes less time. It also imports the modules that the program preloads; its ranks are then forks
of it (`fork_server.py`). The supervisor, which does not import torch, reads `run/ranks/agent.json`.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.records import read_json, write_atomically, write_json
from vastrun.onstart.nodes import this_node_of
from vastrun.onstart.supervision.fork_server import ADDRESS, start_server
from vastrun.onstart.supervision.processes import die_with_parent
from vastrun.onstart.supervision.rank_starter import AgentFailure, start_ranks
from vastrun.onstart.uncollected_import import importing

_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


@dataclass(frozen=True, kw_only=True)
class AgentRecord:
    """The ends of all ranks; those not listed exited 0."""

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
    preload(job.program.preload)
    request = _next_request()
    while (copy := os.fork()) == 0:
        request = _next_request()
    die_with_parent(supervisor)
    # This process becomes the agent of a new start; `copy` is the agent of the next one.
    os.environ.clear()
    os.environ.update(request.env)
    importlib.invalidate_caches()  # folders were added since, for instance the user's code
    if os.getpgrp() != os.getpid():  # a copy
        os.setpgid(0, 0)
    null, log = os.open(os.devnull, os.O_RDONLY), os.open(_box() / layout.AGENT_LOG, _APPEND)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    write_atomically(_box() / layout.SPARE_AGENT, str(copy), durable=False)
    if job.program.preload:
        # Without the server each rank imports everything itself, and stderr has the reason.
        obstacle = _fork_obstacle()
        if not obstacle:
            try:
                os.environ[ADDRESS] = start_server(partial(_run_rank, job.program.module))
            except OSError as error:
                obstacle = str(error)
        if obstacle:
            print(f"each rank imports torch itself, without a fork server: {obstacle}", file=sys.stderr)
    failures = start_ranks(job, this_node_of(job.nodes, os.environ), request.world_size, _box())
    write_json(_box() / layout.AGENT, asdict(AgentRecord(failures=failures)))
    sys.stderr.flush()
    os._exit(1 if failures else 0)  # the teardown of torch takes half a second and may abort


def preload(modules: Iterable[str]) -> None:
    """Import these modules, and start no thread. The ranks report packages that are not installed.

    A rented GPU costs money while its ranks import: seconds at each start and restart, multiplied by the
    ranks of a machine with few cores.
    """
    # numpy's BLAS, which ranks do not use, starts a thread for each core when it is imported.
    limit = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = limit or "1"
    with importing():
        for module in modules:
            if find_spec(module.partition(".")[0]) is not None:
                importlib.import_module(module)
    if limit is None:
        del os.environ["OPENBLAS_NUM_THREADS"]


def _fork_obstacle() -> str:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "the import opened a GPU"
    threads = len(list(Path("/proc/self/task").iterdir()))
    return "the import started threads, which a copy would lack" if threads > 1 else ""


def _run_rank(module: str) -> NoReturn:
    """Run the module like `Job.rank_command`."""
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit()


def _next_request() -> LaunchRequest:
    """Wait for the next request; exit when the supervisor is gone."""
    line = b""
    while not line.endswith(b"\n"):
        more = os.read(0, 1 << 16)
        if not more:
            os._exit(0)
        line += more
    return read_json(LaunchRequest, line)


def _box() -> Path:
    return Path(os.environ["VASTRUN_BOX"])


if __name__ == "__main__":
    main()
