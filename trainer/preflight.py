"""Before training: `python -m trainer.preflight comm --ranks N` times an all-reduce and checks its sum.

NCCL between GPUs, gloo between CPUs, as `job.json` says in the box of VASTRUN_BOX. Without a box: gloo.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import torch
import torch.distributed as torch_dist

from trainer.dist import BACKENDS, DeviceError, device_of
from trainer.rank import read_job

_TIMES = 5
_MEGABYTES = {"gloo": 16, "nccl": 256}
_LIMIT_S = 30.0
_WATCH_EVERY_S = 0.01


def main(arguments: Sequence[str]) -> int:
    """The exit status: 0 when the ranks can talk, else 1."""
    parser = argparse.ArgumentParser(prog="python -m trainer.preflight")
    checks = parser.add_subparsers(required=True)
    comm = checks.add_parser("comm", help="a timed all-reduce over the ranks")
    comm.add_argument("--ranks", type=int, required=True)
    ranks = parser.parse_args(arguments).ranks
    box = os.environ.get("VASTRUN_BOX")
    backend = BACKENDS["cuda" if box and read_job(Path(box)).gpus else "cpu"]
    return check_communication(ranks, backend)


def check_communication(ranks: int, backend: str) -> int:
    """All ranks, forked from this process so that torch is imported once, all-reduce together: 0 or 1."""
    with tempfile.TemporaryDirectory(prefix="vastrun-preflight-") as folder:
        pids = [_fork(rank, ranks, backend, Path(folder) / "store") for rank in range(ranks)]
        faults = _wait(pids, time.monotonic() + _LIMIT_S)
    for rank, fault in faults.items():
        print(f"all-reduce {ranks} ranks {backend}: rank {rank} {fault}", file=sys.stderr)
    return 1 if faults else 0


def _fork(rank: int, ranks: int, backend: str, store: Path) -> int:
    pid = os.fork()
    if pid == 0:
        _become_rank(rank, ranks, backend, store)
    return pid


def _become_rank(rank: int, ranks: int, backend: str, store: Path) -> NoReturn:
    exit_code = 1
    try:
        _all_reduce(rank, ranks, backend, store)
        exit_code = 0
    except (DeviceError, RuntimeError, OSError, ValueError) as error:
        print(f"rank {rank}: {type(error).__name__}: {error}", file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)


def _all_reduce(rank: int, ranks: int, backend: str, store: Path) -> None:
    """Raises RuntimeError when the ranks cannot talk, or the sum is wrong."""
    device = device_of(rank, gpus=ranks if backend == BACKENDS["cuda"] else 0)
    torch_dist.init_process_group(
        backend,
        store=torch_dist.FileStore(str(store), ranks),
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=_LIMIT_S),
        device_id=device if device.type == "cuda" else None,
    )
    megabytes = _MEGABYTES[backend]
    values = torch.empty(megabytes * 250_000, device=device)
    best_s = min(_timed(values, rank) for _ in range(_TIMES))
    expected = ranks * (ranks + 1) / 2
    if not bool((values == expected).all()):
        raise RuntimeError(f"the sum is {values[0].item()}, expected {expected}")
    if rank == 0:
        # What each link carried: a ring sends every byte 2 (n - 1) / n times.
        gigabytes_per_s = megabytes / 1000 * 2 * (ranks - 1) / ranks / best_s
        rate = f"{gigabytes_per_s:.1f} GB/s" if ranks > 1 else "no link to measure"
        print(f"all-reduce {ranks} ranks {backend} {megabytes} MB: {rate}, sum right")


def _timed(values: torch.Tensor, rank: int) -> float:
    values.fill_(rank + 1)
    torch_dist.barrier()
    begin = time.perf_counter()
    torch_dist.all_reduce(values)
    if values.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def _wait(pids: list[int], deadline: float) -> dict[int, str]:
    """How each rank failed, by rank. What is still there at the deadline is killed."""
    faults: dict[int, str] = {}
    running = dict(enumerate(pids))
    while running and time.monotonic() < deadline:
        for rank, pid in list(running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del running[rank]
                code = os.waitstatus_to_exitcode(status)
                if code:
                    faults[rank] = f"ended by {signal.Signals(-code).name}" if code < 0 else f"exited {code}"
        time.sleep(_WATCH_EVERY_S)
    for rank, pid in running.items():
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        faults[rank] = f"did not end within {_LIMIT_S:.0f} s"
    return faults


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
