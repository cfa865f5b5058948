"""Garbage collection: collect at the same steps on all ranks.

A rank that collects at another time makes the GPUs of all others wait for its part of the next collective.
"""

from __future__ import annotations

import gc

_EVERY_STEPS = 500


def collect_at_step(step: int, start: int) -> None:
    """Collect garbage after `step` steps of a training that began after `start`.

    Objects of the first step live as long as the process, and are excluded from then on, like imported
    modules (trainer/train.py).
    """
    if step == start + 1:
        gc.disable()
        gc.collect()
        gc.freeze()
    elif step % _EVERY_STEPS == 0:
        gc.collect()
