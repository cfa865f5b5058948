"""Standard streams: reopen on /dev/null those that cron or `nohup vastrun ... <&- 2>&-` closed."""

from __future__ import annotations

import os
import sys

_NAMES = ("stdin", "stdout", "stderr")
"""Standard streams in the order of their descriptors."""


def open_closed_streams() -> None:
    """Open each closed standard stream on /dev/null, before another file takes its descriptor.

    Otherwise a ledger opened as descriptor 2 would receive the messages to stderr.
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
