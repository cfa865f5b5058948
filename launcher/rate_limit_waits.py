"""RateLimitWaits: counts how often calls to a provider waited for its rate limits, and for how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from threading import Lock


@dataclass(frozen=True, kw_only=True)
class WaitTotal:
    """Waits of one kind of call."""

    waits: int = 0
    seconds: float = 0.0


class RateLimitWaits:
    """Waits of this process by provider and kind of call; many threads may report them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._totals: dict[tuple[str, str], WaitTotal] = {}

    def report(self, provider: str, call: str, seconds: float) -> None:
        """Count a call that waited `seconds`; 0: it did not have to wait."""
        with self._lock:
            before = self._totals.get((provider, call), WaitTotal())
            self._totals[provider, call] = replace(
                before, waits=before.waits + (seconds > 0), seconds=before.seconds + seconds
            )

    def totals(self) -> Mapping[tuple[str, str], WaitTotal]:
        """Return the totals so far by provider and kind of call."""
        with self._lock:
            return dict(self._totals)
