"""Garbage collection at the same steps on all ranks.

A rank that collects by itself keeps the GPUs of all others waiting for its part of the next exchange.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_EVERY_STEPS = 500


@contextmanager
def importing() -> Iterator[None]:
    """Look for no garbage while modules are imported, nor in them later: they stay.

    To look through torch takes half a second each time, and would give each copy of this process a copy of
    its own of all of it.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def collect_by_the_step(step: int, start: int) -> None:
    """Collect garbage after `step` steps of a training that began after `start`.

    What the first step left behind lives as long as the process, and is never looked at again; nor is what
    was imported (trainer/train.py).
    """
    if step == start + 1:
        gc.disable()
        gc.collect()
        gc.freeze()
    elif step % _EVERY_STEPS == 0:
        gc.collect()
