"""A rank's part in the preflight's all-reduce: timed, and its sum checked."""

from __future__ import annotations

import inspect
import time
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as torch_dist

from trainer.boot.preflight.forked import Work, say_ready
from trainer.distributed.group import device_of

MEGABYTES = {"gloo": 16, "nccl": 256}
_TIMES = 5


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
