"""Preload: what the ranks of the onboard trainer import, loaded once in the launch agent, for all of them.

A rented GPU is paid while its ranks import: seconds at each start and each restart, times the ranks of a
machine where they share few cores.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from vastrun.trainer.supervision.fork_server import ADDRESS, start_server
from vastrun.trainer.telemetry.garbage import importing

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


def load(*, wandb: bool = False) -> None:
    """Import all that a rank needs before its first step, and start no thread.

    `wandb`: W&B, too, of which rank 0 would else import what takes half a second beside its first steps.
    """
    # numpy's algebra, which ranks do not use, starts a thread for each core when it is imported.
    limit = os.environ.get(_BLAS_THREADS)
    os.environ[_BLAS_THREADS] = limit or "1"
    with importing():
        import torch._dynamo  # noqa: F401 - else DDP's constructor does

        import vastrun.trainer.loop  # noqa: F401

        if wandb:
            with suppress(ImportError):  # told by the rank that misses it
                import wandb as _wandb  # noqa: F401

    if limit is None:
        del os.environ[_BLAS_THREADS]


def serve_ranks() -> None:
    """Start a server that makes the ranks, unless a copy of this process would differ from a new one.

    Then ranks import everything by themselves, and stderr says why.
    """
    why_not = _unlike_a_new_process()
    if not why_not:
        try:
            os.environ[ADDRESS] = start_server(_train)
        except OSError as error:
            why_not = str(error)
    if why_not:
        print(f"each rank imports torch by itself: {why_not}", file=sys.stderr)


def _unlike_a_new_process() -> str:
    import torch

    if torch.cuda.is_initialized():
        return "the import opened a GPU"
    threads = len(list(Path("/proc/self/task").iterdir()))
    return "the import started threads, which a copy would lack" if threads > 1 else ""


def _train() -> NoReturn:
    """Run the onboard trainer, as `Job.program` starts it."""
    import vastrun.trainer.train

    sys.argv = [str(vastrun.trainer.train.__file__)]
    vastrun.trainer.train.main()
    raise AssertionError("a rank that has ended does not return")
