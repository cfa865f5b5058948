"""vastrun: what your own training program may import, such as `from vastrun import beat`.

The package is on every box, on a path of its own, and comes with `pip install vastrun`. This module needs
the standard library only; outside a run its functions do nothing. `vastrun.sampler` and `vastrun.mix` share
out the data to the ranks.
"""

from __future__ import annotations

import json
import os
import time
from functools import cache
from pathlib import Path
from typing import Literal, SupportsFloat, get_args

__all__ = ["Activity", "beat"]

Activity = Literal["step", "data", "compile", "forward", "backward", "optimizer", "eval", "checkpoint"]
"""What a rank is doing. One that compiles, evaluates or saves may take longer than one that steps."""

_WIDTH = 64
"""Bytes of a heartbeat, as in `trainer/heartbeat.py`: this package imports nothing of the trainer."""


def beat(step: int, activity: Activity = "step", /, **metrics: SupportsFloat) -> None:
    """Report that this rank is in `activity` of `step`, and what it measured: `beat(step, loss=loss)`.

    A beat costs one write. Metrics are numbers, or tensors of one number; those of rank 0 become a line of
    `metrics.jsonl`, from which the curves are drawn. Reading a tensor waits for its GPU, so give metrics only
    every few steps. Raises ValueError for an unknown activity, what `float` raises for a metric that is not a
    number, and OSError when the file cannot be written.
    """
    if activity not in get_args(Activity):
        raise ValueError(f"beat: no activity {activity!r}; there are: {', '.join(get_args(Activity))}")
    folder, rank = os.environ.get("VASTRUN_RUN"), os.environ.get("RANK", "0")
    if folder is None:
        return
    line = f"{int(step)} {activity} {time.time():.3f} {os.getpid()}"
    heartbeat = _opened(f"{folder}/heartbeat/rank-{rank}", os.O_WRONLY | os.O_CREAT)
    os.pwrite(heartbeat, f"{line:<{_WIDTH - 1}}\n".encode(), 0)  # in place, so that it is read whole
    # Metrics of other ranks are not even read: to read a tensor would make them wait for their GPU.
    if metrics and rank == "0":
        record = {"step": int(step)} | {name: _number(value) for name, value in metrics.items()}
        journal = _opened(f"{folder}/metrics.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(journal, f"{json.dumps(record)}\n".encode())


def _number(value: SupportsFloat) -> float:
    return float(value.item() if hasattr(value, "item") else value)  # float() of a loss itself warns


@cache
def _opened(path: str, how: int) -> int:
    """Open a file once for the life of this process, and return its descriptor."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, how, 0o644)
