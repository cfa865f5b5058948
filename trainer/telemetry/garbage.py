"""Garbage: it is collected by the step, so that all ranks pause at once, not each on its own while the others
wait; and memory that was freed is kept for the next step.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress

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


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""mallopt's numbers for them (malloc.h)."""


def keep_freed_memory() -> None:
    """Have malloc keep what a step frees, up to a gigabyte; where malloc is not glibc's, do nothing.

    glibc gives the end of its heap back to the kernel when more than a limit is free there, and a training on
    a CPU asks for it again in the next step: a thousand page faults, 2 % of its time. The limit rises by
    itself with what a process happens to have freed: in a rank that is a copy of the fork server it did not.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_TRIM_THRESHOLD, 1 << 30)
        mallopt(_MMAP_THRESHOLD, 32 << 20)  # the most that it takes
