"""The emulator's time: real by default, faster by a factor, or moved by hand."""

from __future__ import annotations

import time


class Clock:
    """Epoch seconds that pass `factor` times as fast as real ones; with 0 only `advance` moves them."""

    def __init__(self, factor: float = 1.0) -> None:
        self._factor = factor
        self._began = time.time()
        self._started = time.monotonic()
        self._stepped = 0.0

    def now(self) -> float:
        """Epoch seconds."""
        return self._began + (time.monotonic() - self._started) * self._factor + self._stepped

    def advance(self, seconds: float) -> None:
        """It is `seconds` later at once."""
        self._stepped += seconds
