"""Host memory of a rank that trains on a CPU: what a step frees is kept for the next one, in large pages."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""mallopt's numbers for them (malloc.h)."""
_COLLAPSE = 25
"""madvise's number for MADV_COLLAPSE, since Linux 6.1."""
_LARGE = 2 << 20
"""Bytes of a large page of x86-64 and of most arm64 kernels."""


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


def move_to_large_pages() -> None:
    """Move what this process holds so far, such as all imported modules, into pages of its own of 2 MiB.

    A copy of the fork server has its large pages in pieces, and each operation then waits for many addresses
    to be looked up: 1 to 2 % of a step. Takes 0.1 s and 0.2 GiB. Does nothing where the computer's owner wants
    no large pages, and where the kernel knows no such order.
    """
    with suppress(OSError, AttributeError):
        if "[never]" not in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text():
            madvise = ctypes.CDLL(None).madvise
            for begin, end in list(_own_ranges(Path("/proc/self/maps").read_text())):
                _collapse(madvise, begin, end)


def _collapse(madvise: Callable[[Any, Any, int], int], begin: int, end: int) -> None:
    # Page by page: one that cannot be had, as of a range with a hole, does not end it for the others.
    for address in range(-(-begin // _LARGE) * _LARGE, end - _LARGE + 1, _LARGE):
        madvise(ctypes.c_void_p(address), ctypes.c_size_t(_LARGE), _COLLAPSE)


def _own_ranges(maps: str) -> Iterator[tuple[int, int]]:
    """Yield first and last address of what is malloc's, Python's or a thread's, not of files."""
    for line in maps.splitlines():
        addresses, rights, _, _, _, *name = line.split()
        if rights == "rw-p" and name in ([], ["[heap]"]):
            begin, end = addresses.split("-")
            yield int(begin, 16), int(end, 16)
