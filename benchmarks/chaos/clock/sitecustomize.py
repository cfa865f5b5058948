"""Python's wall clock, moved by the seconds that stand in the file CHAOS_CLOCK. Imported at its start."""

from __future__ import annotations

import os
import time
from pathlib import Path

_FILE = Path(os.environ["CHAOS_CLOCK"])
_true = time.time


def _time() -> float:
    return _true() + float(_FILE.read_text() or 0)


time.time = _time
