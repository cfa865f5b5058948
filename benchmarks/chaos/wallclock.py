"""The wall clock of one user's computer, which is set forward or back while commands run (libfaketime)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_PLACES = ("/usr/lib", "/usr/local/lib")
_NAME = "faketime/libfaketimeMT.so.1"


class WallClock:
    """Of every process that is started with `variables`. Their monotonic clocks are left alone."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set_by(0.0)
        self.variables: Mapping[str, str] = {
            "LD_PRELOAD": str(_library()),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    def set_by(self, seconds: float) -> None:
        """The clock is so far from the true one."""
        self._file.write_text(f"{seconds:+.0f}\n")


def _library() -> Path:
    """Raises FileNotFoundError where it is not installed."""
    for place in _PLACES:
        for path in Path(place).glob(f"**/{_NAME}"):
            return path
    raise FileNotFoundError("libfaketime is not installed; on Debian: apt-get install libfaketime")
