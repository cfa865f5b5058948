"""Forked ranks: run a function in ranks forked from this process, which share its imports, with a timeout."""

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
from typing import NoReturn, Optional

RankFunction = Callable[[int, int, Path], Optional[float]]  # noqa: UP045 - evaluated by Python 3.9, too
"""Function of a rank: (rank, ranks, shared folder); may return a figure."""

_WATCH_EVERY_S = 0.01
_REAP_S = 5.0


@dataclass(frozen=True, kw_only=True)
class ForkedRanks:
    """The ends of the ranks."""

    faults: Mapping[int, str]
    """Text on the failure of each failed rank."""
    figure: float | None = None
    """Result of rank 0."""


def run_forked(
    work: RankFunction, ranks: int, env: Mapping[str, str], limit_s: float, *, start_s: float | None = None
) -> ForkedRanks:
    """Fork ranks that run `work` with `env` in their environment; kill them at the timeout.

    `start_s`: seconds within which each rank must report ready; `limit_s` then counts from the last one.
    """
    with tempfile.TemporaryDirectory(prefix="vastrun-preflight-") as name:
        folder = Path(name)
        pids = {rank: _fork_rank(work, rank, ranks, env, folder) for rank in range(ranks)}
        faults: dict[int, str] = {}
        late = set() if start_s is None else _late(pids, faults, folder, start_s)
        if late:
            faults |= _kill_all({rank: pids[rank] for rank in late}, f"was not ready within {start_s:.0f} s")
            _kill_all({rank: pid for rank, pid in pids.items() if rank not in late}, "")
        else:
            _wait(pids, faults, limit_s)
            faults |= _kill_all(pids, f"did not end within {limit_s:.0f} s")
        figure = folder / "figure"
        return ForkedRanks(faults=faults, figure=float(figure.read_text()) if figure.exists() else None)


def report_ready(rank: int, folder: Path) -> None:
    """Report that this rank has started and is ready for the measurement."""
    _ready(rank, folder).touch()


def _ready(rank: int, folder: Path) -> Path:
    return folder / f"ready-{rank}"


def _late(pids: dict[int, int], faults: dict[int, str], folder: Path, start_s: float) -> set[int]:
    """Wait until all ranks are ready or one has failed; return those that were not ready in time."""

    def waited_for() -> set[int]:
        return {rank for rank in pids if not _ready(rank, folder).exists()}

    _wait(pids, faults, start_s, until=lambda: bool(faults) or not waited_for())
    return set() if faults else waited_for()


def _fork_rank(work: RankFunction, rank: int, ranks: int, env: Mapping[str, str], folder: Path) -> int:
    sys.stdout.flush()  # each fork would write the buffered output again
    pid = os.fork()
    if pid == 0:
        _become_rank(work, rank, ranks, env, folder)
    return pid


def _become_rank(work: RankFunction, rank: int, ranks: int, env: Mapping[str, str], folder: Path) -> NoReturn:
    exit_code = 1
    try:
        os.environ.update(env)
        figure = work(rank, ranks, folder)
        if rank == 0 and figure is not None:
            (folder / "figure").write_text(str(figure))
        exit_code = 0
    finally:
        if error := sys.exc_info()[1]:
            print(
                f"rank {rank}: {''.join(traceback.format_exception_only(type(error), error)).strip()}",
                file=sys.stderr,
            )
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)


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
        time.sleep(_WATCH_EVERY_S)


def _kill_all(running: dict[int, int], why: str) -> dict[int, str]:
    """Kill the remaining ranks. A rank that is stuck in a driver cannot be killed, and is not waited for."""
    faults = dict.fromkeys(running, why)
    for pid in running.values():
        os.kill(pid, signal.SIGKILL)
    _wait(running, {}, _REAP_S)
    return faults | dict.fromkeys(running, f"{why}, and cannot be killed")
