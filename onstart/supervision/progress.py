"""Progress: tracks the step and activity of every rank, and finds the one that is stuck, if any.

Standard library only.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.outcome import IdleGpus
from vastrun.contract.program import finished_steps
from vastrun.contract.records import write_json
from vastrun.contract.reports import Beat, read_beat
from vastrun.onstart.optional_files import read_end
from vastrun.onstart.supervision.processes import innermost_program
from vastrun.onstart.supervision.rank_process import RankProcess
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


@dataclass(kw_only=True)
class ProgressTracker:
    """Reads the heartbeats and records when each last changed, by this machine's monotonic clock."""

    box: Path
    _moved: dict[int, tuple[Beat | None, float]] = field(default_factory=dict)

    def ranks_progress(self, processes: Iterable[RankProcess]) -> tuple[RankProgress, ...]:
        found, now = list[RankProgress](), time.monotonic()
        for rank in (process.rank for process in processes if process.exit_code is None):
            beat = beat_of(self.box, rank)
            if rank not in self._moved or self._moved[rank][0] != beat:
                self._moved[rank] = (beat, now)
            step, activity = (beat.step, beat.activity) if beat else (0, "")
            still_s = now - self._moved[rank][1]
            found.append(RankProgress(rank=rank, step=step, activity=activity, still_s=still_s))
        return tuple(found)


def beat_of(box: Path, rank: int) -> Beat | None:
    """Read the rank's last heartbeat."""
    return read_beat(box / layout.HEARTBEATS / f"rank-{rank}")


def pid_of(box: Path, process: RankProcess) -> int:
    """Return the pid of the program that beats; else of the rank's process or its shell's child."""
    beat = beat_of(box, process.rank)
    return beat.pid if beat else innermost_program(process.pid)


def write_status(
    box: Path,
    ranks_progress: Iterable[RankProgress],
    processes: Iterable[RankProcess],
    *,
    world_size: int,
    steps: int,
    idle_gpus: IdleGpus | None = None,
) -> None:
    """Write the progress of the training to `run/status.json`; with a full disk the old file stays.

    Its step is the one that every rank has reached: that of the finished stages, else 0, while some of the
    `world_size` ranks here have not started. Where no rank reports one, it is the step of the curves.
    """
    first_step = finished_steps(box)
    still_s = {rank_progress.rank: rank_progress.still_s for rank_progress in ranks_progress}
    ranks = list[dict[str, Any]]()
    for process in processes:
        beat = beat_of(box, process.rank)
        rank = {
            "rank": process.rank,
            "pid": None if process.exit_code is not None else beat.pid if beat else process.pid,
            "step": beat.step if beat else 0,
            "activity": beat.activity if beat else "",
            "age_s": round(still_s.get(process.rank, 0.0), 1),
        }
        ranks.append(rank)
    step = min(rank["step"] for rank in ranks) if len(ranks) >= max(1, world_size) else 0
    if not any(rank["step"] or rank["activity"] for rank in ranks):  # none reports its steps
        step = logged_step(box)
    status = {
        "at": round(time.time(), 3),
        "step": max(first_step, step),
        "steps": steps,
        "loss": last_loss(box).value,
        "ranks": ranks,
        "idle_gpus": None if idle_gpus is None else asdict(idle_gpus),
    }
    with contextlib.suppress(OSError):
        write_json(box / layout.STATUS, status, durable=False)


@dataclass(frozen=True, kw_only=True)
class Loss:
    value: float | None = None
    finite: bool | None = None
    """True for a finite loss; None: no loss was recorded."""

    @classmethod
    def of(cls, recorded: object) -> Loss:
        """Read a JSON value; without a finite number, `value` is None."""
        if isinstance(recorded, (int, float)) and math.isfinite(recorded):
            return cls(value=float(recorded), finite=True)
        return cls(value=None, finite=False)


def last_loss(box: Path) -> Loss:
    """Return the loss of the last complete metrics line that has one."""
    record = _last_record(box, "loss")
    return Loss.of(record["loss"]) if record else Loss()


def logged_step(box: Path) -> int:
    """Return the step of the newest metrics line, wherever a program logs its curves; 0: there is none."""
    step = _last_record(box, "step").get("step")
    return step if type(step) is int and step > 0 else 0


def _last_record(box: Path, key: str) -> dict[str, Any]:
    """Return the last complete metrics line with that key; empty: there is none."""
    for line in reversed(read_end(box / layout.METRICS, 1 << 14).decode("utf-8", "replace").splitlines()):
        with contextlib.suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict) and key in record:
                return record
    return {}
