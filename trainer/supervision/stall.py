"""The stall rule: which rank is stuck, if any. Pure functions, standard library only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

STARTING = ("", "start")
_WAITING = ("torch/distributed/", "torch/autograd/", "torch/nn/parallel/")
_SLOW = ("eval", "checkpoint")
_ORDER = ("", "start", "data", "forward", "step", "backward", "optimizer", "eval", "checkpoint", "done")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long a rank may stand still."""

    stall_s: float
    start_s: float

    def of(self, stage: str) -> float:
        """Seconds a rank may stand still in this stage."""
        if stage in STARTING:
            return self.start_s
        return max(self.stall_s, self.start_s) if stage in _SLOW else self.stall_s


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where a living rank stands, and since when."""

    rank: int
    step: int
    stage: str
    """Empty: it never beat."""
    still_s: float
    """Seconds since it last moved."""
    frames: tuple[str, ...] = ()
    """Files of its main thread's stack, innermost first; known once it was dumped."""


def stalled(standings: Iterable[Standing], limits: Limits) -> bool:
    """True when a rank stood still for longer than its stage allows."""
    return any(standing.still_s > limits.of(standing.stage) for standing in standings)


def comparable(standings: Sequence[Standing], silent_s: float | None) -> tuple[Standing, ...]:
    """The ranks whose movement can be told.

    Those that beat; a program may beat on some ranks only. When none does, a line in any log is a movement of
    all, and before the first line (`silent_s` is None) they are starting.
    """
    beating = tuple(s for s in standings if s.stage)
    if beating or silent_s is None:
        return beating or tuple(standings)
    return tuple(replace(s, stage="step", still_s=silent_s) for s in standings)


def stuck(standings: Sequence[Standing]) -> Standing:
    """The rank the others wait for: the furthest behind; of equals, the one that waits for nobody."""
    if all(s.stage for s in standings):
        return min(standings, key=lambda s: (s.step, _order(s.stage), waits_for_others(s), s.rank))
    return min(standings, key=lambda s: (waits_for_others(s), s.step, s.rank))


def waits_for_others(standing: Standing) -> bool:
    """True when the innermost frame is a collective, or a backward pass, which runs collectives."""
    innermost = standing.frames[0] if standing.frames else ""
    return any(place in innermost for place in _WAITING)


def _order(stage: str) -> int:
    return _ORDER.index(stage if stage in _ORDER else "step")
