"""Standard streams: what cron or `nohup vastrun ... <&- 2>&-` closed is opened again, on /dev/null."""

from __future__ import annotations

import os
import sys

_NAMES = ("stdin", "stdout", "stderr")
"""Standard streams in the order of their descriptors."""


def open_closed_streams() -> None:
    """Open each standard stream that is closed, before any other file takes its descriptor.

    A ledger with descriptor 2 would otherwise receive what is written to stderr.
    """
    for descriptor, name in enumerate(_NAMES):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free descriptor is taken: those below are open by now.
            opened = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(opened, True)
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
