"""The flight recorder of NCCL: asked, each rank writes which collectives it was in. Standard library only."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

from trainer.contract import layout

_POLL_S = 0.05


def dump_recorders(box: Path, ranks: Iterable[int], *, within_s: float) -> None:
    """Have the ranks write their flight recorders to `run/flight-recorder`, and give them time for it.

    A rank has one as soon as it has a process group of NCCL. Its watchdog looks at the pipe once a second.
    """
    deadline = time.monotonic() + within_s
    asked = [box / layout.FLIGHT_RECORDER / f"rank-{rank}" for rank in ranks if _ask(box, rank)]
    sizes: list[int] = []
    while asked and time.monotonic() < deadline:
        before, sizes = sizes, [path.stat().st_size if path.exists() else 0 for path in asked]
        if all(sizes) and sizes == before:
            return
        time.sleep(_POLL_S)


def _ask(box: Path, rank: int) -> bool:
    """Ask this rank; return True when somebody reads its pipe."""
    with contextlib.suppress(OSError):
        pipe = os.open(box / layout.RECORDER_PIPES / f"rank-{rank}.pipe", os.O_WRONLY | os.O_NONBLOCK)
        try:
            return os.write(pipe, b"1") == 1
        finally:
            os.close(pipe)
    return False
