"""Ranks forked from this process, so that what it imported is imported once, under a timer."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

Work = Callable[[int, int, Path], float | None]
"""What a rank does: (rank, ranks, a folder that all of them see); a rank may have a figure to tell."""

_WATCH_EVERY_S = 0.01
_REAP_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Forked:
    """How the ranks ended."""

    faults: Mapping[int, str]
    """Rank -> how it failed."""
    figure: float | None = None
    """What rank 0 told."""


def run_forked(work: Work, ranks: int, env: Mapping[str, str], limit_s: float) -> Forked:
    """Fork ranks that do their work together, with `env` in their environment.

    At the limit they are killed.
    """
    with tempfile.TemporaryDirectory(prefix="vastrun-preflight-") as name:
        folder = Path(name)
        pids = {rank: _fork(work, rank, ranks, env, folder) for rank in range(ranks)}
        faults = _wait(pids, time.monotonic() + limit_s)
        faults |= _kill(pids, limit_s)
        told = folder / "figure"
        return Forked(faults=faults, figure=float(told.read_text()) if told.exists() else None)


def _fork(work: Work, rank: int, ranks: int, env: Mapping[str, str], folder: Path) -> int:
    sys.stdout.flush()  # what waits in the buffer would be written by each of them
    pid = os.fork()
    if pid == 0:
        _become_rank(work, rank, ranks, env, folder)
    return pid


def _become_rank(work: Work, rank: int, ranks: int, env: Mapping[str, str], folder: Path) -> NoReturn:
    exit_code = 1
    try:
        os.environ.update(env)
        figure = work(rank, ranks, folder)
        if rank == 0 and figure is not None:
            (folder / "figure").write_text(str(figure))
        exit_code = 0
    finally:
        if error := sys.exception():
            print(f"rank {rank}: {''.join(traceback.format_exception_only(error)).strip()}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)


def _wait(running: dict[int, int], deadline: float) -> dict[int, str]:
    """Return how ranks failed until then; `running` keeps those that have not ended."""
    faults: dict[int, str] = {}
    while running and time.monotonic() < deadline:
        for rank, pid in list(running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del running[rank]
                code = os.waitstatus_to_exitcode(status)
                if code:
                    faults[rank] = f"ended by {signal.Signals(-code).name}" if code < 0 else f"exited {code}"
        time.sleep(_WATCH_EVERY_S)
    return faults


def _kill(running: dict[int, int], limit_s: float) -> dict[int, str]:
    """Kill what is left. A rank that a driver holds cannot be killed, and is not waited for."""
    faults = dict.fromkeys(running, f"did not end within {limit_s:.0f} s")
    for pid in running.values():
        os.kill(pid, signal.SIGKILL)
    _wait(running, time.monotonic() + _REAP_S)
    return faults | {rank: f"{faults[rank]}, and cannot be killed" for rank in running}
