"""The emulator's time: real by default, faster by a factor, or moved by hand."""

import time


class Clock:
    """Epoch seconds that pass `factor` times as fast as real ones; with 0 only `advance` moves them."""

    def __init__(
        self, factor: float = 1.0, *, began: float | None = None, started: float | None = None
    ) -> None:
        """`began`: the epoch seconds at the moment `started` of the computer's monotonic clock; None: now.

        Clocks of several processes that were given the same three numbers tell the same time.
        """
        self.factor = factor
        self.began = time.time() if began is None else began
        self.started = time.monotonic() if started is None else started
        self._stepped = 0.0

    def now(self) -> float:
        """Epoch seconds."""
        return self.began + (time.monotonic() - self.started) * self.factor + self._stepped

    def sleep(self, seconds: float) -> None:
        """Return after so many of its seconds. One that stands still has none."""
        time.sleep(max(0.0, seconds) / self.factor)

    def advance(self, seconds: float) -> None:
        """It is `seconds` later at once."""
        self._stepped += seconds
