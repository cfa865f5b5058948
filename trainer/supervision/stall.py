"""The stall rule: which rank is stuck, if any. Pure functions, standard library only."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from trainer.contract.job import Job
from trainer.supervision.stacks import Frame

STARTING = ("", "start")
LOG_ALONE = "log"
"""The stage of a rank that never beat, and whose program prints: its step is not known."""
_SLOW = ("compile", "eval", "checkpoint")
_ORDER = (
    *STARTING,
    *("data", "compile", "forward", "step", "backward", "optimizer", "eval", "checkpoint", "done"),
)
_BACKWARD = "torch/autograd/"
_STRATEGY = (_BACKWARD, "torch/distributed/fsdp/", "torch/nn/")
_OURS = f"{Path(__file__).parents[1]}/"
_WAITING = (_BACKWARD, "torch/distributed/", "torch/nn/parallel/")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long a rank may stand still."""

    stall_s: float
    start_s: float
    stages: Mapping[str, float] = field(default_factory=dict)
    """Of the slow stages that have one of their own."""

    @classmethod
    def of_job(cls, job: Job) -> Limits:
        """What the job says."""
        own = asdict(job.train.limits) if job.train else {}
        stages = {name.removesuffix("_s"): seconds for name, seconds in own.items() if seconds is not None}
        return cls(stall_s=job.stall_s, start_s=job.start_s, stages=stages)

    def of(self, stage: str) -> float:
        """Seconds a rank may stand still in this stage."""
        if stage in STARTING:
            return self.start_s
        usual = max(self.stall_s, self.start_s) if stage in _SLOW else self.stall_s
        return self.stages.get(stage, usual)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where a living rank stands, and since when."""

    rank: int
    step: int
    stage: str
    """Empty: it never beat."""
    still_s: float
    """Seconds since it last moved."""
    frames: tuple[Frame, ...] = ()
    """Its main thread's stack, innermost first; known once it was dumped."""


def stalled(standings: Iterable[Standing], limits: Limits) -> bool:
    """True when a rank made no progress for longer than its stage allows."""
    return any(standing.still_s > limits.of(standing.stage) for standing in standings)


def comparable(standings: Sequence[Standing], silent_s: float | None) -> tuple[Standing, ...]:
    """The ranks whose movement can be told.

    Those that beat; a program may beat on some ranks only. When none does, a line in any log is a movement of
    all, and before the first line (`silent_s` is None) they are starting.
    """
    beating = tuple(s for s in standings if s.stage)
    if beating or silent_s is None:
        return beating or tuple(standings)
    return tuple(replace(s, stage=LOG_ALONE, still_s=silent_s) for s in standings)


def suspects(standings: Sequence[Standing], silent_s: float | None) -> tuple[Standing, ...]:
    """All of whom one may be stuck: those comparable, and, as still as these, those that never beat."""
    telling = comparable(standings, silent_s)
    known, still_s = {s.rank for s in telling}, max(s.still_s for s in telling)
    return (*telling, *(replace(s, still_s=still_s) for s in standings if s.rank not in known))


def stuck(standings: Sequence[Standing]) -> Standing:
    """The rank the others wait for.

    One that waits for nobody comes before those that wait in a collective. When all wait, it is the one whose
    collective differs from that of the most. Of equals it is the furthest behind of those that beat.
    """
    count = Counter(collective_of(s) for s in standings)

    def order_of(s: Standing) -> tuple[bool, int, bool, bool, int, int, int]:
        waits_in = collective_of(s)
        step, stage = (s.step, _order(s.stage)) if s.stage else (0, 0)
        return waits_in is not None, count[waits_in], not _by_hand(s), not s.stage, step, stage, s.rank

    return min(standings, key=order_of)


def collective_of(standing: Standing) -> str | None:
    """What it waits for others in: a collective's name, or `backward`, which runs some; None: in nothing."""
    for frame in itertools.takewhile(Frame.is_library, standing.frames):
        if _BACKWARD in frame.file:
            return "backward"
        if any(place in frame.file for place in _WAITING):
            return frame.function
    return None


def _by_hand(standing: Standing) -> bool:
    """True when the user's own code called the collective; those of the trainer are alike on all ranks."""
    library = list(itertools.takewhile(Frame.is_library, standing.frames))
    caller = standing.frames[len(library) : len(library) + 1]
    strategy = any(place in frame.file for frame in library for place in _STRATEGY)
    return bool(library and caller) and not strategy and not caller[0].file.startswith(_OURS)


def _order(stage: str) -> int:
    return _ORDER.index(stage if stage in _ORDER else "step")
