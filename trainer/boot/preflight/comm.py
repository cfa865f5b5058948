"""Communication: the ranks all-reduce before they train, in the first way that works on this machine."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as torch_dist

from vastrun.contract import layout
from vastrun.contract.records import write_json
from vastrun.trainer.boot.preflight.forked import Forked, Work, run_forked, say_ready
from vastrun.trainer.distributed.group import device_of

MEGABYTES = {"gloo": 16, "nccl": 256}
_TIMES = 5


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way for the ranks to talk, and how long to try it."""

    env: dict[str, str] = field(default_factory=dict)
    limit_s: float
    """Of the all-reduce, from when all ranks are ready for it."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What came of trying one."""

    env: dict[str, str]
    fault: str | None
    gb_per_s: float | None


# Where GPUs cannot reach each other's memory, by a fault of the board or of its settings, NCCL hangs or adds
# up wrongly. Then it has to copy through shared memory, or else through sockets.
WAYS = {
    "gloo": (Way(limit_s=30.0),),
    "nccl": (
        Way(limit_s=25.0),
        Way(env={"NCCL_P2P_DISABLE": "1"}, limit_s=12.0),
        Way(env={"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}, limit_s=12.0),
    ),
}
START_S = 60.0
"""For CUDA and the process group to start: that takes long on a slow machine, whose links may be sound."""
_LEAST_GB_PER_S = {"gloo": 0.0, "nccl": 0.5}
"""Even sockets are faster."""


def check_communication(box: Path, ranks: int, backend: str) -> int:
    """Find a way for the ranks to talk.

    Returns the step's exit status; `run/preflight.json` says what was tried.
    """
    name = f"all-reduce {ranks} ranks {backend}"

    def try_way(way: Way) -> Trial:
        forked = run_forked(
            all_reduce(backend, START_S + way.limit_s), ranks, way.env, way.limit_s, start_s=START_S
        )
        return judge(way, forked, least_gb_per_s=_LEAST_GB_PER_S[backend])

    trials = try_ways(WAYS[backend], try_way)
    for trial in trials:
        print(_line(name, trial, MEGABYTES[backend]), file=sys.stderr if trial.fault else sys.stdout)
    # Also when no way works: the record says what each of them failed with.
    env = {} if trials[-1].fault else trials[-1].env
    tried = [asdict(trial) for trial in trials]
    write_json(box / layout.PREFLIGHT, {"backend": backend, "ranks": ranks, "env": env, "trials": tried})
    return 1 if trials[-1].fault else 0


def try_ways(ways: Sequence[Way], try_way: Callable[[Way], Trial]) -> list[Trial]:
    """Try each way until one works; that is the last."""
    trials: list[Trial] = []
    for way in ways:
        trials.append(try_way(way))
        if trials[-1].fault is None:
            break
    return trials


def judge(way: Way, forked: Forked, *, least_gb_per_s: float) -> Trial:
    """Say what the ranks' end tells of the way they talked."""
    fault = "; ".join(f"rank {rank} {how}" for rank, how in sorted(forked.faults.items())) or None
    if fault is None and forked.figure is not None and forked.figure < least_gb_per_s:
        fault = f"only {forked.figure:.2g} GB/s, expected at least {least_gb_per_s:g}"
    return Trial(env=way.env, fault=fault, gb_per_s=forked.figure)


def _line(name: str, trial: Trial, megabytes: int) -> str:
    chosen = "".join(f" {variable}={value}" for variable, value in trial.env.items())
    how = f"{name}{f' with{chosen}' if chosen else ''}"
    if trial.fault:
        return f"{how}: {trial.fault}"
    rate = "no link to measure" if trial.gb_per_s is None else f"{trial.gb_per_s:.1f} GB/s"
    return f"{how} {megabytes} MB: {rate}, sum right"


def all_reduce(backend: str, limit_s: float) -> Work:
    """Do the work of a rank. Returns gigabytes a second, if there is a link to measure."""
    return partial(_all_reduce, backend, limit_s)


def _all_reduce(backend: str, limit_s: float, rank: int, ranks: int, folder: Path) -> float | None:
    """Sum over the ranks. Raises RuntimeError when they cannot talk, or the sum is wrong."""
    device = device_of(rank, gpus=ranks if backend == "nccl" else 0)
    torch_dist.init_process_group(
        backend,
        store=torch_dist.FileStore(str(folder / "store"), ranks),
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=limit_s),
        **at_once(device),
    )
    values = torch.empty(MEGABYTES[backend] * 250_000, device=device)
    say_ready(rank, folder)
    return measured(values, rank, ranks, times=_TIMES)


def at_once(device: torch.device) -> dict[str, Any]:
    """Return the arguments of `init_process_group` with which NCCL connects at once, since torch 2.3."""
    known = inspect.signature(torch_dist.init_process_group).parameters
    return {"device_id": device} if device.type == "cuda" and "device_id" in known else {}


def measured(values: torch.Tensor, rank: int, ranks: int, *, times: int) -> float | None:
    """Sum float32 values over the ranks, several times; return what each link carried at best, in GB/s.

    None: there is no link. Raises RuntimeError when the sum is wrong.
    """
    best_s = min(_timed(values, rank) for _ in range(times))
    expected = ranks * (ranks + 1) / 2
    if not bool((values == expected).all()):
        raise RuntimeError(f"the sum is {values[0].item()}, expected {expected}")
    # A ring sends every byte 2 (n - 1) / n times.
    return values.nbytes / 1e9 * 2 * (ranks - 1) / ranks / best_s if ranks > 1 else None


def _timed(values: torch.Tensor, rank: int) -> float:
    values.fill_(rank + 1)
    torch_dist.barrier()
    begin = time.perf_counter()
    torch_dist.all_reduce(values)
    if values.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - begin
