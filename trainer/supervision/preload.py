"""Preload: imports the modules of the onboard trainer's ranks once, in the launch agent.

A rented GPU costs money while its ranks import: seconds at each start and restart, multiplied by the ranks of
a machine with few cores.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from vastrun.trainer.supervision.fork_server import ADDRESS, start_server
from vastrun.trainer.uncollected_import import importing

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


def load(*, wandb: bool = False) -> None:
    """Import all modules that a rank needs before its first step, and start no thread.

    `wandb`: also W&B, whose import would take rank 0 half a second during its first steps.
    """
    # numpy's BLAS, which ranks do not use, starts a thread for each core when it is imported.
    limit = os.environ.get(_BLAS_THREADS)
    os.environ[_BLAS_THREADS] = limit or "1"
    with importing():
        import torch._dynamo  # noqa: F401 - else DDP's constructor does

        import vastrun.trainer.loop  # noqa: F401

        if wandb:
            with suppress(ImportError):  # rank 0 reports it
                import wandb as _wandb  # noqa: F401

    if limit is None:
        del os.environ[_BLAS_THREADS]


def serve_ranks() -> None:
    """Start the server that forks the ranks, unless a fork of this process would differ from a new process.

    Without the server each rank imports everything itself, and stderr has the reason.
    """
    obstacle = _fork_obstacle()
    if not obstacle:
        try:
            os.environ[ADDRESS] = start_server(_train)
        except OSError as error:
            obstacle = str(error)
    if obstacle:
        print(f"each rank imports torch itself, without a fork server: {obstacle}", file=sys.stderr)


def _fork_obstacle() -> str:
    import torch

    if torch.cuda.is_initialized():
        return "the import opened a GPU"
    threads = len(list(Path("/proc/self/task").iterdir()))
    return "the import started threads, which a copy would lack" if threads > 1 else ""


def _train() -> NoReturn:
    """Run the onboard trainer like `Job.program`."""
    import vastrun.trainer.train

    sys.argv = [str(vastrun.trainer.train.__file__)]
    vastrun.trainer.train.main()
    raise AssertionError("a rank that has ended does not return")
