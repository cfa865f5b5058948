"""Launch agent: starts the ranks and records how each ended.

`run_module.py vastrun.onstart.supervision.launch_agent SUPERVISOR` reads its request from stdin. Before it
starts the ranks it forks: the copy, which has torch imported already, waits for the next request, so that the
next start takes less time. It also imports the modules that the program preloads; its ranks are then forks
of it (`fork_server.py`). The supervisor, which does not import torch, reads `run/ranks/agent.json`.

It sets the variables of `torchrun` without torch: a user's program may use any version of it, or none. Like
torchrun, it ends all ranks once one has failed.
"""

from __future__ import annotations

import importlib
import os
import random
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.records import read_json, write_atomically, write_json
from vastrun.onstart.nodes import RANKS_PORT, ThisNode, this_node_of
from vastrun.onstart.run_module import importing, module_command
from vastrun.onstart.supervision.fork_server import ADDRESS, start_server
from vastrun.onstart.supervision.processes import die_with_parent
from vastrun.onstart.supervision.rank_process import RankProcess

_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND
COUNT = "LOCAL_WORLD_SIZE"
"""Variable with the number of ranks on this node: of the agent, too."""
_KILL_AFTER_S = 30.0
"""Seconds between SIGTERM and SIGKILL, the same as torchrun's, and until no more is waited for."""


def main() -> NoReturn:
    """Start the ranks and exit when all have ended: with 0 when all exited 0."""
    supervisor = int(sys.argv[1])
    die_with_parent(supervisor)
    box = Path(os.environ["VASTRUN_BOX"])
    job = Job.read(box)
    preload(job.program.preload)
    request = _next_request()
    while (copy := os.fork()) == 0:
        request = _next_request()
    die_with_parent(supervisor)
    # This process becomes the agent of a new start; `copy` is the agent of the next one.
    os.environ.clear()
    os.environ.update(request)
    importlib.invalidate_caches()  # folders were added since, for instance the user's code
    if os.getpgrp() != os.getpid():  # a copy
        os.setpgid(0, 0)
    null, log = os.open(os.devnull, os.O_RDONLY), os.open(box / layout.AGENT_LOG, _APPEND)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    write_atomically(box / layout.SPARE_AGENT, str(copy), durable=False)
    if job.program.preload:
        # Without the server each rank imports everything itself, and stderr has the reason.
        try:
            _check_forkable()
            os.environ[ADDRESS] = start_server(partial(_run_rank, job.program.module))
        except OSError as error:
            print(f"each rank imports torch itself, without a fork server: {error}", file=sys.stderr)
    failures = start_ranks(job, this_node_of(job.nodes, os.environ), int(request[COUNT]), box)
    write_json(box / layout.AGENT, list(map(vars, failures)))
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


def _check_forkable() -> None:
    """Raise OSError where a copy of this process would differ from a new one."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        raise OSError("the import opened a GPU")
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        raise OSError("the import started threads, which a copy would lack")


def _run_rank(module: str) -> NoReturn:
    """Run the module like `Job.rank_command`."""
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit()


def _next_request() -> dict[str, str]:
    """Return the environment of the next start's ranks; exit when the supervisor is gone."""
    line = b""
    while not line.endswith(b"\n"):
        more = os.read(0, 1 << 16)
        if not more:
            os._exit(0)
        line += more
    return read_json(dict[str, str], line)


def start_ranks(job: Job, this_node: ThisNode, count: int, box: Path) -> tuple[RankProcess, ...]:
    """Start `count` ranks on this node, wait until all have ended, and return those that failed first.

    Their pid is 0: the agent knows only that of the process that watches the program.
    """
    address, port = master_of(this_node)
    shared = {**os.environ, "MASTER_ADDR": address, "MASTER_PORT": str(port)}
    # -S: the watcher of a rank needs no packages, and starts sooner.
    command = (*module_command("vastrun.onstart.supervision.rank_process", "-S"), str(os.getpid()))
    ranks = {}
    for local, rank in enumerate(this_node.ranks(count)):
        variables = shared | rank_variables(job, this_node, count, local, box)
        ranks[rank] = subprocess.Popen(command, env=variables, start_new_session=True)
    while all(process.poll() in (None, 0) for process in ranks.values()):
        if all(process.returncode == 0 for process in ranks.values()):
            return ()
        time.sleep(0.05)
    now = time.time()
    failures = tuple(
        RankProcess(rank=rank, pid=0, started_at=now, exit_code=process.returncode, ended_at=now)
        for rank, process in ranks.items()
        if process.returncode
    )
    for number in (signal.SIGTERM, signal.SIGKILL):
        running = [process for process in ranks.values() if process.poll() is None]
        for process in running:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        deadline = time.monotonic() + _KILL_AFTER_S
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
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
        COUNT: count,
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


if __name__ == "__main__":
    main()
