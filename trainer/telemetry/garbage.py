"""Garbage collection by the step: all ranks pause at once, not each on its own while the others wait."""

from __future__ import annotations

import gc

_EVERY_STEPS = 500


def collect_by_the_step(step: int, start: int) -> None:
    """After `step` steps of a training that began after `start`.

    What the first step left behind lives as long as the process, and is never looked at again; nor is what
    was imported (trainer/train.py).
    """
    if step == start + 1:
        gc.disable()
        gc.collect()
        gc.freeze()
    elif step % _EVERY_STEPS == 0:
        gc.collect()
