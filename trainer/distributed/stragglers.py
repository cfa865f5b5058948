"""Stragglers: the rank that all others wait for, when it is nearly always the same one."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

_VOTES = 200
_FEWEST_VOTES = 40
_NAMED_FROM = 0.8
_FORGIVEN_BELOW = 0.5
_WORTH = 0.02
"""Of the time of a step: less is noise, and costs nothing."""


class Stragglers:
    """Sees by each vote how long every rank worked before it met the others."""

    def __init__(self) -> None:
        self._last: deque[int | None] = deque(maxlen=_VOTES)
        self._wait_s: deque[float] = deque(maxlen=_VOTES)
        self._named: int | None = None

    def see(self, alone_s: Sequence[float], step_s: float) -> str | None:
        """What to tell, when there is something new to tell."""
        *others, last_s = sorted(alone_s)
        wait_s = last_s - others[-1] if others else 0.0
        self._last.append(alone_s.index(last_s) if wait_s > _WORTH * step_s else None)
        self._wait_s.append(wait_s)
        rank, times = Counter(self._last).most_common(1)[0]
        share = times / len(self._last)
        if self._named is not None and (rank != self._named or share < _FORGIVEN_BELOW):
            self._named = None
        if rank is None or rank == self._named or len(self._last) < _FEWEST_VOTES or share <= _NAMED_FROM:
            return None
        self._named = rank
        mean_ms = 1000 * sum(self._wait_s) / len(self._wait_s)
        return (
            f"rank {rank} is slow: the others wait {mean_ms:.0f} ms a step for it ({share:.0%} of the votes)"
        )
