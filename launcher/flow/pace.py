"""Pace: how fast a training goes, from what was seen of it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

MIN_SEEN_S = 20.0
"""What is seen for less says more of the looks than of the training."""
_WINDOW_S = 180.0
"""What is left is told by the pace of so long."""
_MIN_WINDOW_S = 5.0
_MAX_POINTS = 1000


@dataclass
class Pace:
    """The first step seen and the last; moments on our own clock."""

    began_at: float = 0.0
    first: float = 0
    """0: none was seen."""
    moved_at: float = 0.0
    last: float = 0
    _recent: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_MAX_POINTS))
    """Moments, and the steps that were reached then."""

    def observe(self, step: float, now: float) -> None:
        """Count from the first step that somebody saw: what loads and compiles comes before it."""
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
        """Steps that were seen to be done."""
        return self.last - self.first if self.first > 0 else 0.0

    @property
    def steps_per_s(self) -> float | None:
        """None while too little was seen."""
        return self.seen_steps / self.seen_s if self.first > 0 and self.seen_s >= MIN_SEEN_S else None

    @property
    def best_steps_per_s(self) -> float | None:
        """Of all that was seen or of the last minutes, the faster of both; None while too little was seen."""
        steps_per_s = self.steps_per_s
        if steps_per_s is None or len(self._recent) < 2:
            return steps_per_s
        (began_at, first), (moved_at, last) = self._recent[0], self._recent[-1]
        if moved_at - began_at < MIN_SEEN_S:
            return steps_per_s
        return max(steps_per_s, (last - first) / (moved_at - began_at))

    def left_s(self, steps: float, now: float) -> float | None:
        """Estimate the seconds until `steps` are done, by the last minutes; None while that is not known.

        The next step is always still to come: where nothing moves, what is left does not run out.
        """
        if len(self._recent) < 2:
            return None
        (began_at, first), (moved_at, last) = self._recent[0], self._recent[-1]
        if first <= 0 or moved_at - began_at < _MIN_WINDOW_S or last >= steps:
            return None
        step_s = (moved_at - began_at) / (last - first)
        return max((steps - last) * step_s - (now - moved_at), (steps - last - 1) * step_s)
