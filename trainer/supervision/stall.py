"""The stall rule: which rank is stuck, if any. Pure functions, standard library only."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from vastrun.contract.job import Job
from vastrun.trainer.supervision.stacks import StackFrame

STARTING = ("", "start")
LOG_ALONE = "log"
"""The activity of a rank that never beat, and whose program prints: its step is not known."""
_SLOW = ("compile", "eval", "checkpoint")
_ORDER = (
    *STARTING,
    *("data", "compile", "forward", "step", "backward", "optimizer", "eval", "checkpoint", "done"),
)
_BACKWARD = "torch/autograd/"
_STRATEGY = (_BACKWARD, "torch/distributed/fsdp/", "torch/nn/")
_OURS = f"{Path(__file__).parents[1]}/"
_WAITING = (_BACKWARD, "torch/distributed/", "torch/nn/parallel/")
_DEVICE = ("torch/cuda/", "torch/accelerator/")
_ON_DEVICE = "synchronize"
"""What waits for a GPU waits for its collectives: those of NCCL run there, behind the host's back."""
_READS_DEVICE = (f"{_OURS}distributed/group.py", "mean_of")


@dataclass(frozen=True, kw_only=True)
class StallLimits:
    """How long a rank may stand still."""

    stall_s: float
    start_s: float
    activities: Mapping[str, float] = field(default_factory=dict)
    """Of the slow activities that have one of their own."""

    @classmethod
    def of_job(cls, job: Job) -> StallLimits:
        """Return what the job says."""
        own = asdict(job.train.limits) if job.train else {}
        activities = {
            name.removesuffix("_s"): seconds for name, seconds in own.items() if seconds is not None
        }
        return cls(stall_s=job.stall_s, start_s=job.start_s, activities=activities)

    def of(self, activity: str) -> float:
        """Return the seconds a rank may stand still in this activity."""
        if activity in STARTING:
            return self.start_s
        usual = max(self.stall_s, self.start_s) if activity in _SLOW else self.stall_s
        return self.activities.get(activity, usual)


@dataclass(frozen=True, kw_only=True)
class RankProgress:
    """Where a living rank stands, and since when."""

    rank: int
    step: int
    activity: str
    """Empty: it never beat."""
    still_s: float
    """Seconds since it last moved."""
    frames: tuple[StackFrame, ...] = ()
    """Its main thread's stack, innermost first; known once it was dumped."""


def stalled(ranks_progress: Iterable[RankProgress], limits: StallLimits) -> bool:
    """Tell whether a rank made no progress for longer than its activity allows."""
    return any(rank_progress.still_s > limits.of(rank_progress.activity) for rank_progress in ranks_progress)


def comparable(ranks_progress: Sequence[RankProgress], silent_s: float | None) -> tuple[RankProgress, ...]:
    """Return the ranks whose movement can be told.

    Those that beat; a program may beat on some ranks only. When none does, a line in any log is a movement of
    all, and before the first line (`silent_s` is None) they are starting.
    """
    beating = tuple(s for s in ranks_progress if s.activity)
    if beating or silent_s is None:
        return beating or tuple(ranks_progress)
    return tuple(replace(s, activity=LOG_ALONE, still_s=silent_s) for s in ranks_progress)


def suspects(ranks_progress: Sequence[RankProgress], silent_s: float | None) -> tuple[RankProgress, ...]:
    """Return those of whom one may be stuck: those comparable, and, as still, those that never beat."""
    telling = comparable(ranks_progress, silent_s)
    known, still_s = {s.rank for s in telling}, max(s.still_s for s in telling)
    return (*telling, *(replace(s, still_s=still_s) for s in ranks_progress if s.rank not in known))


def stuck(ranks_progress: Sequence[RankProgress]) -> RankProgress:
    """Return the rank the others wait for.

    One that waits for nobody comes before those that wait in a collective. When all wait, it is the one whose
    collective differs from that of the most. Of equals it is the furthest behind of those that beat.
    """
    count = Counter(collective_of(s) for s in ranks_progress)

    def order_of(s: RankProgress) -> tuple[bool, int, bool, bool, int, int, int]:
        waits_in = collective_of(s)
        activity = _ORDER.index(s.activity if s.activity in _ORDER else "step") if s.activity else 0
        step = s.step if s.activity else 0
        return waits_in is not None, count[waits_in], not _by_hand(s), not s.activity, step, activity, s.rank

    return min(ranks_progress, key=order_of)


def collective_of(rank_progress: RankProgress) -> str | None:
    """Name what it waits for others in: a collective, or `backward`, which runs some; None: in nothing.

    `synchronize`: on its GPU, in whatever runs there.
    """
    if any((frame.file, frame.function) == _READS_DEVICE for frame in rank_progress.frames[:1]):
        return _ON_DEVICE
    for frame in itertools.takewhile(StackFrame.is_library, rank_progress.frames):
        if _BACKWARD in frame.file:
            return "backward"
        on_device = frame.function == _ON_DEVICE and any(place in frame.file for place in _DEVICE)
        if on_device or any(place in frame.file for place in _WAITING):
            return frame.function
    return None


def _by_hand(rank_progress: RankProgress) -> bool:
    """Tell whether the user's own code called the collective; the trainer's are alike on all ranks."""
    library = list(itertools.takewhile(StackFrame.is_library, rank_progress.frames))
    caller = rank_progress.frames[len(library) : len(library) + 1]
    strategy = any(place in frame.file for frame in library for place in _STRATEGY)
    return bool(library and caller) and not strategy and not caller[0].file.startswith(_OURS)
