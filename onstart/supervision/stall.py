"""Stall detection: finds the rank that is stuck, if any. Pure functions, standard library only."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vastrun.contract.job import Job
from vastrun.onstart.supervision.stacks import StackFrame

STARTING = ("", "start")
LOG_ONLY = "log"
"""Activity of a rank that never beat but prints: its step is unknown."""
_SLOW = ("compile", "eval", "checkpoint")
_ORDER = (
    *STARTING,
    *("data", "compile", "forward", "step", "backward", "optimizer", "eval", "checkpoint", "done"),
)
_BACKWARD = "torch/autograd/"
_STRATEGY = (_BACKWARD, "torch/distributed/fsdp/", "torch/nn/")
_WAITING = (_BACKWARD, "torch/distributed/", "torch/nn/parallel/")
_DEVICE = ("torch/cuda/", "torch/accelerator/")
_ON_DEVICE = "synchronize"
"""Function that waits for a GPU, and so for its collectives: NCCL runs them there asynchronously."""


@dataclass(frozen=True, kw_only=True)
class RankProgress:
    rank: int
    step: int
    activity: str
    """Activity of its last beat; empty: it never beat."""
    still_s: float
    """Seconds since its last progress."""
    frames: tuple[StackFrame, ...] = ()
    """Stack of its main thread, innermost first; empty before it was dumped."""


def stall_limit_s(job: Job, activity: str) -> float:
    """Return the maximum seconds without progress in this activity."""
    if activity in STARTING:
        return job.start_s
    usual = max(job.stall_s, job.start_s) if activity in _SLOW else job.stall_s
    return job.program.activity_timeouts_s.get(activity, usual)


def stalled(ranks_progress: Iterable[RankProgress], job: Job) -> bool:
    """Tell whether a rank made no progress for longer than the limit of its activity."""
    return any(s.still_s > stall_limit_s(job, s.activity) for s in ranks_progress)


def observable_ranks(
    ranks_progress: Sequence[RankProgress], silent_s: float | None
) -> tuple[RankProgress, ...]:
    """Return the ranks whose progress can be observed.

    These are the ranks that beat; a program may beat on some ranks only. When none does, a line in any log
    counts as progress of all, and before the first line (`silent_s` is None) they are starting.
    """
    beating = tuple(s for s in ranks_progress if s.activity)
    if beating or silent_s is None:
        return beating or tuple(ranks_progress)
    return tuple(replace(s, activity=LOG_ONLY, still_s=silent_s) for s in ranks_progress)


def possibly_stuck(
    ranks_progress: Sequence[RankProgress], silent_s: float | None
) -> tuple[RankProgress, ...]:
    """Return the ranks that may be stuck: the observable ones, and those that never beat as equally still."""
    observable = observable_ranks(ranks_progress, silent_s)
    known, still_s = {s.rank for s in observable}, max(s.still_s for s in observable)
    return (*observable, *(replace(s, still_s=still_s) for s in ranks_progress if s.rank not in known))


def find_stuck(ranks_progress: Sequence[RankProgress], package: Path | None = None) -> RankProgress:
    """Return the rank that the others wait for.

    A rank outside of collectives comes before ranks that wait in one. When all wait, it is the rank whose
    collective the fewest ranks share. Among equals it is the furthest behind of those that beat.
    `package`: folder of the program's own package, whose calls are the same on all ranks.
    """
    count = Counter(collective_of(s) for s in ranks_progress)

    def order_of(s: RankProgress) -> tuple[bool, int, bool, bool, int, int, int]:
        waits_in = collective_of(s)
        return (
            waits_in is not None,
            count[waits_in],
            not _is_user_call(s, package),
            not s.activity,
            s.step,
            _ORDER.index(s.activity if s.activity in _ORDER else "step"),
            s.rank,
        )

    return min(ranks_progress, key=order_of)


def collective_of(rank_progress: RankProgress) -> str | None:
    """Return the collective in which it waits, or `backward`, which runs some; None: it does not wait.

    `synchronize`: it waits for its GPU.
    """
    for frame in itertools.takewhile(StackFrame.is_library, rank_progress.frames):
        if _BACKWARD in frame.file:
            return "backward"
        on_device = frame.function == _ON_DEVICE and any(place in frame.file for place in _DEVICE)
        if on_device or any(place in frame.file for place in _WAITING):
            return frame.function
    return None


def _is_user_call(rank_progress: RankProgress, package: Path | None) -> bool:
    """Tell whether the user's code called the collective."""
    library = list(itertools.takewhile(StackFrame.is_library, rank_progress.frames))
    caller = rank_progress.frames[len(library) : len(library) + 1]
    strategy = any(place in frame.file for frame in library for place in _STRATEGY)
    is_own = bool(caller) and package is not None and caller[0].file.startswith(f"{package}/")
    return bool(library and caller) and not strategy and not is_own
