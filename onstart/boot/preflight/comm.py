"""Communication: tests an all-reduce of ranks forked from this process, and one over the nodes of a run."""

from __future__ import annotations

import inspect
import math
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as torch_dist

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.records import write_json
from vastrun.onstart.nodes import ThisNode, network_environment, this_node_of

MEGABYTES = {"gloo": 16, "nccl": 256}
RankFunction = Callable[[int, int, Path], float | None]
"""Function of a rank: (rank, ranks, shared folder); may return a figure."""


@dataclass(frozen=True, kw_only=True)
class CommTrial:
    """The result of a test of settings, which are variables of the ranks."""

    env: Mapping[str, str]
    fault: str | None
    gb_per_s: float | None


# Where GPUs cannot reach each other's memory, by a fault of the board or its settings, NCCL hangs or returns
# wrong sums. Then it has to copy through shared memory, or else through sockets.
SETTINGS: Mapping[str, tuple[tuple[Mapping[str, str], float], ...]] = {
    "gloo": (({}, 30.0),),
    "nccl": (
        ({}, 25.0),
        ({"NCCL_P2P_DISABLE": "1"}, 12.0),
        ({"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}, 12.0),
    ),
}
"""Variables to try, each with the seconds for the all-reduce, counted from when all ranks are ready."""
START_S = 60.0
"""Timeout for the start of CUDA and the process group, which takes long on a slow machine with good links."""
_MIN_GB_PER_S = {"gloo": 0.0, "nccl": 0.5}
"""Minimum rate; even sockets are faster."""
_LINK_MEGABYTES = 16
_CONNECT_TIMEOUT_S = 600.0
"""Timeout for all nodes to connect: one may have tested several settings of its ranks before."""


def check_communication(box: Path, ranks: int, backend: str) -> int:
    """Find communication settings that work.

    Returns the step's exit status; `run/preflight.json` records all trials.
    """
    name, trials = f"all-reduce {ranks} ranks {backend}", list[CommTrial]()
    for env, limit_s in SETTINGS[backend]:
        work = partial(all_reduce, backend, START_S + limit_s)
        trial = try_settings(work, ranks, env, limit_s, min_gb_per_s=_MIN_GB_PER_S[backend])
        trials.append(trial)
        chosen = "".join(f" {variable}={value}" for variable, value in env.items())
        how = f"{name}{f' with{chosen}' if chosen else ''}"
        if trial.fault is None:
            rate = "no link to measure" if trial.gb_per_s is None else f"{trial.gb_per_s:.1f} GB/s"
            print(f"{how} {MEGABYTES[backend]} MB: {rate}, sum correct")
            break
        print(f"{how}: {trial.fault}", file=sys.stderr)
    # Also when no settings work: the record has the fault of each.
    env = {} if trials[-1].fault else trials[-1].env
    tried = [asdict(trial) for trial in trials]
    write_json(box / layout.PREFLIGHT, {"backend": backend, "ranks": ranks, "env": env, "trials": tried})
    return 1 if trials[-1].fault else 0


def try_settings(
    work: RankFunction, ranks: int, env: Mapping[str, str], limit_s: float, *, min_gb_per_s: float = 0.0
) -> CommTrial:
    """Run ranks with these settings, and evaluate their ends."""
    faults, figure = run_forked(work, ranks, env, limit_s, start_s=START_S)
    fault = "; ".join(f"rank {rank} {how}" for rank, how in sorted(faults.items())) or None
    if fault is None and figure is not None and figure < min_gb_per_s:
        fault = f"only {figure:.2g} GB/s, expected at least {min_gb_per_s:g}"
    return CommTrial(env=env, fault=fault, gb_per_s=figure)


def all_reduce(backend: str, limit_s: float, rank: int, ranks: int, folder: Path) -> float | None:
    """Sum over the ranks; return GB/s, if there is a link to measure.

    Raises RuntimeError for failed communication or a wrong sum.
    """
    device, store = _device_of(rank, backend), torch_dist.FileStore(str(folder / "store"), ranks)
    _init_process_group(backend, store, rank, ranks, device, limit_s)
    values = torch.empty(MEGABYTES[backend] * 250_000, device=device)
    report_ready(rank, folder)
    return measure_all_reduce(values, rank, ranks, times=5)


def _device_of(rank: int, backend: str) -> torch.device:
    """Return the device of a rank: its GPU for NCCL, else the CPU. Raises RuntimeError."""
    if backend != "nccl":
        return torch.device("cpu")
    seen = torch.cuda.device_count()
    if rank >= seen:
        raise RuntimeError(f"GPU {rank} is needed, but torch {torch.__version__} sees only {seen} GPUs")
    torch.cuda.set_device(rank)
    return torch.device("cuda", rank)


def _init_process_group(
    backend: str, store: torch_dist.Store, rank: int, ranks: int, device: torch.device, timeout_s: float
) -> None:
    """Connect the ranks; NCCL connects eagerly, since torch 2.3."""
    known = inspect.signature(torch_dist.init_process_group).parameters
    eager: dict[str, Any] = {"device_id": device} if device.type == "cuda" and "device_id" in known else {}
    torch_dist.init_process_group(
        backend, store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=timeout_s), **eager
    )


def measure_all_reduce(values: torch.Tensor, rank: int, ranks: int, *, times: int) -> float | None:
    """Sum float32 values over the ranks, several times; return the best rate of each link, in GB/s.

    None: there is no link. Raises RuntimeError for a wrong sum.
    """
    best_s = math.inf
    for _ in range(times):
        values.fill_(rank + 1)
        torch_dist.barrier()
        began = time.perf_counter()
        torch_dist.all_reduce(values)
        if values.is_cuda:
            torch.cuda.synchronize()
        best_s = min(best_s, time.perf_counter() - began)
    expected = ranks * (ranks + 1) / 2
    if not bool((values == expected).all()):
        raise RuntimeError(f"the sum is {values[0].item()}, expected {expected}")
    # A ring sends every byte 2 (n - 1) / n times.
    return values.nbytes / 1e9 * 2 * (ranks - 1) / ranks / best_s if ranks > 1 else None


def run_forked(
    work: RankFunction, ranks: int, env: Mapping[str, str], limit_s: float, *, start_s: float
) -> tuple[Mapping[int, str], float | None]:
    """Fork ranks that run `work` with `env` in their environment; kill them at the timeout.

    Returns a text on each failed rank, and the result of rank 0.
    `start_s`: seconds within which each rank must report ready; `limit_s` then counts from the last one.
    """
    with tempfile.TemporaryDirectory(prefix="vastrun-preflight-") as name:
        folder = Path(name)
        pids = {rank: _fork_rank(work, rank, ranks, env, folder) for rank in range(ranks)}
        faults: dict[int, str] = {}

        def late() -> set[int]:
            return {rank for rank in pids if not (folder / f"ready-{rank}").exists()}

        _wait(pids, faults, start_s, until=lambda: bool(faults) or not late())
        blamed, why = late(), f"was not ready within {start_s:.0f} s"
        if faults or not blamed:
            _wait(pids, faults, limit_s)
            blamed, why = set(pids), f"did not end within {limit_s:.0f} s"
        for pid in pids.values():
            os.kill(pid, signal.SIGKILL)
        # A rank that is stuck in a driver cannot be killed, and is not waited for.
        _wait(pids, {}, within_s=5.0)
        faults |= {rank: f"{why}, and cannot be killed" if rank in pids else why for rank in blamed}
        figure = folder / "figure"
        return faults, float(figure.read_text()) if figure.exists() else None


def report_ready(rank: int, folder: Path) -> None:
    """Report that this rank has started and is ready for the measurement."""
    (folder / f"ready-{rank}").touch()


def _fork_rank(work: RankFunction, rank: int, ranks: int, env: Mapping[str, str], folder: Path) -> int:
    sys.stdout.flush()  # each fork would write the buffered output again
    if pid := os.fork():
        return pid
    try:
        os.environ.update(env)
        figure = work(rank, ranks, folder)
        if rank == 0 and figure is not None:
            (folder / "figure").write_text(str(figure))
    finally:
        error = sys.exc_info()[1]
        if error is not None:
            text = "".join(traceback.format_exception_only(error)).strip()
            print(f"rank {rank}: {text}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0 if error is None else 1)


def _wait(
    running: dict[int, int],
    faults: dict[int, str],
    within_s: float,
    until: Callable[[], bool] = lambda: False,
) -> None:
    """Record failures in `faults` until the timeout; `running` keeps the ranks that have not ended."""
    deadline = time.monotonic() + within_s
    while running and time.monotonic() < deadline and not until():
        for rank, pid in list(running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del running[rank]
                code = os.waitstatus_to_exitcode(status)
                if code:
                    faults[rank] = f"ended by {signal.Signals(-code).name}" if code < 0 else f"exited {code}"
        time.sleep(0.01)


def check_link(box: Path, min_mbps: float, backend: str) -> int:
    """Measure the rate between the nodes, by one rank of each. Returns the step's exit status."""
    job = Job.read(box)
    this_node = this_node_of(job.nodes, os.environ)
    work = partial(_sum_over_nodes, this_node, backend)
    faults, figure = run_forked(work, 1, network_environment(this_node), 60.0, start_s=_CONNECT_TIMEOUT_S)
    mbps = (figure or 0.0) * 8000  # from GB/s
    name = f"all-reduce {job.nodes} nodes {backend} {_LINK_MEGABYTES} MB"
    if fault := link_fault(faults, mbps, min_mbps):
        print(f"{name}: {fault}", file=sys.stderr)
        return 1
    print(f"{name}: {mbps:.0f} Mbit/s, sum correct")
    return 0


def link_fault(faults: Mapping[int, str], mbps: float, min_mbps: float) -> str:
    """Return why the nodes cannot train together; empty if they can."""
    if faults:
        return f"the nodes cannot reach each other: the rank {faults[0]}"
    if mbps < min_mbps:
        return f"only {mbps:.0f} Mbit/s between the nodes, expected at least {min_mbps:g}"
    return ""


def _sum_over_nodes(this_node: ThisNode, backend: str, _rank: int, _ranks: int, folder: Path) -> float | None:
    """Sum over the nodes; return GB/s. Raises RuntimeError for failed communication or a wrong sum."""
    nodes, device = this_node.nodes, _device_of(0, backend)
    # At a port of its own: the supervisors and the ranks use the next two.
    store = torch_dist.TCPStore(
        this_node.host,
        this_node.port,
        world_size=nodes,
        is_master=this_node.is_host,
        timeout=timedelta(seconds=_CONNECT_TIMEOUT_S),
    )
    prefixed = torch_dist.PrefixStore("link", store)
    _init_process_group(backend, prefixed, this_node.node, nodes, device, _CONNECT_TIMEOUT_S)
    values = torch.empty(_LINK_MEGABYTES * 250_000, device=device)
    torch_dist.barrier()
    report_ready(0, folder)
    # The first is the slowest: connections are made.
    figure = measure_all_reduce(values, this_node.node, nodes, times=3)
    # Node 0 has the store: it exits last.
    store.set(f"done {this_node.node}", "")
    if this_node.is_host:
        store.wait([f"done {node}" for node in range(nodes)])
    return figure
