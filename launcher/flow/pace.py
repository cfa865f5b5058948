"""Pace: the speed of a training, from the steps that were seen."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

MIN_SEEN_S = 20.0
"""Min. seconds of observation: a shorter one measures the looks, not the training."""
_WINDOW_S = 180.0
"""Seconds of the last steps by which the remaining time is estimated."""
_MIN_WINDOW_S = 5.0
_MAX_POINTS = 1000


@dataclass
class Pace:
    """The first step seen and the last, by the launcher's clock."""

    began_at: float = 0.0
    first: float = 0
    """First step that was seen; 0: none."""
    moved_at: float = 0.0
    last: float = 0
    _recent: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_MAX_POINTS))
    """Moments with the steps that were reached then."""

    def observe(self, step: float, now: float) -> None:
        """Record a step. Counts from the first one seen: loading and compiling come before it."""
        # Ranks that were restarted continue from a checkpoint: the steps in between are done twice.
        if self.first == 0 or step < self.last:
            self.began_at, self.first = now, step
            self._recent.clear()
        if step != self.last:
            self.moved_at, self.last = now, step
            self._recent.append((now, step))
        while len(self._recent) > 2 and self._recent[1][0] < now - _WINDOW_S:
            self._recent.popleft()

    @property
    def seen_s(self) -> float:
        """Seconds from the first step that was seen to the last."""
        return self.moved_at - self.began_at

    @property
    def seen_steps(self) -> float:
        """Number of steps that were observed."""
        return self.last - self.first if self.first > 0 else 0.0

    @property
    def steps_per_s(self) -> float | None:
        """Mean steps per second since the first one seen; None while too little was seen."""
        return self.seen_steps / self.seen_s if self.first > 0 and self.seen_s >= MIN_SEEN_S else None

    @property
    def best_steps_per_s(self) -> float | None:
        """Steps per second overall or in the last minutes, whichever is faster; None while unknown."""
        steps_per_s = self.steps_per_s
        if steps_per_s is None or len(self._recent) < 2:
            return steps_per_s
        (began_at, first), (moved_at, last) = self._recent[0], self._recent[-1]
        if moved_at - began_at < MIN_SEEN_S:
            return steps_per_s
        return max(steps_per_s, (last - first) / (moved_at - began_at))

    def left_s(self, steps: float, now: float) -> float | None:
        """Estimate the seconds until `steps` are done, by the last minutes; None while unknown.

        The next step always counts as still to come, so that the rest of a stuck training does not reach
        0.
        """
        if len(self._recent) < 2:
            return None
        (began_at, first), (moved_at, last) = self._recent[0], self._recent[-1]
        if first <= 0 or moved_at - began_at < _MIN_WINDOW_S or last >= steps:
            return None
        step_s = (moved_at - began_at) / (last - first)
        return max((steps - last) * step_s - (now - moved_at), (steps - last - 1) * step_s)
