"""Root without its right to open every file, so that root's tests meet the faults that anybody meets."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_OPENS_EVERYTHING = 1 << 1 | 1 << 2
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH."""


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("thread", ctypes.c_int))


class _Sets(ctypes.Structure):
    """The first half of all capabilities, and the other half."""

    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inherited", ctypes.c_uint32),
    )


@contextmanager
def like_anybody() -> Iterator[None]:
    """A file's mode holds for this thread, too, whoever runs it."""
    if os.geteuid() != 0:
        yield
        return
    libc, header, sets = ctypes.CDLL(None, use_errno=True), _Header(0x20080522, 0), (_Sets * 2)()

    def call(name: str) -> None:
        if getattr(libc, name)(ctypes.byref(header), ctypes.byref(sets)):
            raise OSError(ctypes.get_errno(), name)

    call("capget")
    before = sets[0].effective
    sets[0].effective = before & ~_OPENS_EVERYTHING
    call("capset")
    try:
        yield
    finally:
        sets[0].effective = before
        call("capset")
