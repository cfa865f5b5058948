"""Communication: tests an all-reduce of the ranks, and finds the settings that work on this machine."""

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
from vastrun.trainer.boot.preflight.forked import ForkedRanks, RankFunction, report_ready, run_forked
from vastrun.trainer.distributed.group import device_of

MEGABYTES = {"gloo": 16, "nccl": 256}
_TIMES = 5


@dataclass(frozen=True, kw_only=True)
class CommSettings:
    """Settings for the communication of the ranks, with the timeout of their test."""

    env: dict[str, str] = field(default_factory=dict)
    limit_s: float
    """Seconds for the all-reduce, counted from when all ranks are ready."""


@dataclass(frozen=True, kw_only=True)
class CommTrial:
    """The result of a test of settings."""

    env: dict[str, str]
    fault: str | None
    gb_per_s: float | None


# Where GPUs cannot reach each other's memory, by a fault of the board or its settings, NCCL hangs or returns
# wrong sums. Then it has to copy through shared memory, or else through sockets.
SETTINGS = {
    "gloo": (CommSettings(limit_s=30.0),),
    "nccl": (
        CommSettings(limit_s=25.0),
        CommSettings(env={"NCCL_P2P_DISABLE": "1"}, limit_s=12.0),
        CommSettings(env={"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}, limit_s=12.0),
    ),
}
START_S = 60.0
"""Timeout for the start of CUDA and the process group, which takes long on a slow machine with good links."""
_MIN_GB_PER_S = {"gloo": 0.0, "nccl": 0.5}
"""Minimum rate; even sockets are faster."""


def check_communication(box: Path, ranks: int, backend: str) -> int:
    """Find communication settings that work.

    Returns the step's exit status; `run/preflight.json` records all trials.
    """
    name = f"all-reduce {ranks} ranks {backend}"

    def run_trial(settings: CommSettings) -> CommTrial:
        forked = run_forked(
            all_reduce(backend, START_S + settings.limit_s),
            ranks,
            settings.env,
            settings.limit_s,
            start_s=START_S,
        )
        return evaluate_trial(settings, forked, min_gb_per_s=_MIN_GB_PER_S[backend])

    trials = try_settings(SETTINGS[backend], run_trial)
    for trial in trials:
        print(_line(name, trial, MEGABYTES[backend]), file=sys.stderr if trial.fault else sys.stdout)
    # Also when no settings work: the record has the fault of each.
    env = {} if trials[-1].fault else trials[-1].env
    tried = [asdict(trial) for trial in trials]
    write_json(box / layout.PREFLIGHT, {"backend": backend, "ranks": ranks, "env": env, "trials": tried})
    return 1 if trials[-1].fault else 0


def try_settings(
    settings_list: Sequence[CommSettings], run_trial: Callable[[CommSettings], CommTrial]
) -> list[CommTrial]:
    """Try the settings in order until some work, which are the last."""
    trials: list[CommTrial] = []
    for settings in settings_list:
        trials.append(run_trial(settings))
        if trials[-1].fault is None:
            break
    return trials


def evaluate_trial(settings: CommSettings, forked: ForkedRanks, *, min_gb_per_s: float) -> CommTrial:
    """Evaluate the ends of the ranks under these settings."""
    fault = "; ".join(f"rank {rank} {how}" for rank, how in sorted(forked.faults.items())) or None
    if fault is None and forked.figure is not None and forked.figure < min_gb_per_s:
        fault = f"only {forked.figure:.2g} GB/s, expected at least {min_gb_per_s:g}"
    return CommTrial(env=settings.env, fault=fault, gb_per_s=forked.figure)


def _line(name: str, trial: CommTrial, megabytes: int) -> str:
    chosen = "".join(f" {variable}={value}" for variable, value in trial.env.items())
    how = f"{name}{f' with{chosen}' if chosen else ''}"
    if trial.fault:
        return f"{how}: {trial.fault}"
    rate = "no link to measure" if trial.gb_per_s is None else f"{trial.gb_per_s:.1f} GB/s"
    return f"{how} {megabytes} MB: {rate}, sum right"


def all_reduce(backend: str, limit_s: float) -> RankFunction:
    """Return the work of a rank, whose result is GB/s, if there is a link to measure."""
    return partial(_all_reduce, backend, limit_s)


def _all_reduce(backend: str, limit_s: float, rank: int, ranks: int, folder: Path) -> float | None:
    """Sum over the ranks. Raises RuntimeError for failed communication or a wrong sum."""
    device = device_of(rank, gpus=ranks if backend == "nccl" else 0)
    torch_dist.init_process_group(
        backend,
        store=torch_dist.FileStore(str(folder / "store"), ranks),
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=limit_s),
        **eager_init_options(device),
    )
    values = torch.empty(MEGABYTES[backend] * 250_000, device=device)
    report_ready(rank, folder)
    return measure_all_reduce(values, rank, ranks, times=_TIMES)


def eager_init_options(device: torch.device) -> dict[str, Any]:
    """Return arguments of `init_process_group` that make NCCL connect eagerly, since torch 2.3."""
    known = inspect.signature(torch_dist.init_process_group).parameters
    return {"device_id": device} if device.type == "cuda" and "device_id" in known else {}


def measure_all_reduce(values: torch.Tensor, rank: int, ranks: int, *, times: int) -> float | None:
    """Sum float32 values over the ranks, several times; return the best rate of each link, in GB/s.

    None: there is no link. Raises RuntimeError for a wrong sum.
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
