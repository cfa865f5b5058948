"""Host memory of a rank that trains on a CPU: what a step frees is kept for the next one, in large pages."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""mallopt's numbers for them (malloc.h)."""
_COLLAPSE = 25
"""madvise's number for MADV_COLLAPSE, since Linux 6.1."""
_LARGE = 2 << 20
"""Bytes of a large page of x86-64."""


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
    """Move malloc's memory so far, such as that of the imported modules, into pages of its own of 2 MiB.

    A copy of the fork server has its large pages in pieces, and each operation then waits for many addresses
    to be looked up: 1 % of a step. Takes 0.07 s and 0.1 GiB. Does nothing where the computer's owner wants no
    large pages, or the kernel knows no such order. Python's own memory, moved too, gained nothing in 0.2 s.
    """
    with suppress(OSError, AttributeError):
        if "[never]" not in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text():
            madvise = ctypes.CDLL(None).madvise
            for begin, end in _heap(Path("/proc/self/maps").read_text()):
                madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _COLLAPSE)


def _heap(maps: str) -> Iterator[tuple[int, int]]:
    """Yield the addresses where large pages begin and end, of each range of the heap that has one."""
    for line in maps.splitlines():
        addresses, _, _, _, _, *name = line.split()
        if name == ["[heap]"]:
            first, last = (int(address, 16) for address in addresses.split("-"))
            begin, end = -(-first // _LARGE) * _LARGE, last // _LARGE * _LARGE
            if begin < end:
                yield begin, end
