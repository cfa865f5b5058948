"""Preload: imports the modules of a program's ranks once, in the launch agent. Standard library only.

A rented GPU costs money while its ranks import: seconds at each start and restart, multiplied by the ranks of
a machine with few cores.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Iterable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from vastrun.onstart.supervision.fork_server import ADDRESS, start_server
from vastrun.onstart.uncollected_import import importing

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


def load(modules: Iterable[str]) -> None:
    """Import these modules, and start no thread. The ranks report packages that are not installed."""
    # numpy's BLAS, which ranks do not use, starts a thread for each core when it is imported.
    limit = os.environ.get(_BLAS_THREADS)
    os.environ[_BLAS_THREADS] = limit or "1"
    with importing():
        for module in modules:
            if find_spec(module.partition(".")[0]) is not None:
                import_module(module)
    if limit is None:
        del os.environ[_BLAS_THREADS]


def serve_ranks(module: str) -> None:
    """Start the server that forks the ranks, unless a fork of this process would differ from a new process.

    Without the server each rank imports everything itself, and stderr has the reason.
    """
    obstacle = _fork_obstacle()
    if not obstacle:
        try:
            os.environ[ADDRESS] = start_server(partial(_run, module))
        except OSError as error:
            obstacle = str(error)
    if obstacle:
        print(f"each rank imports torch itself, without a fork server: {obstacle}", file=sys.stderr)


def _fork_obstacle() -> str:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "the import opened a GPU"
    threads = len(list(Path("/proc/self/task").iterdir()))
    return "the import started threads, which a copy would lack" if threads > 1 else ""


def _run(module: str) -> NoReturn:
    """Run the module like `Job.rank_command`."""
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit()
