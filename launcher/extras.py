"""Extras: packages that only some users need, brought by one command."""

from __future__ import annotations

import shlex
import sys


def install_command(extra: str) -> str:
    """Say what to type for an extra of this very vastrun: a plain `pip` may be another Python's."""
    return f"{shlex.quote(sys.executable)} -m pip install 'vastrun[{extra}]'"
