"""How the ranks ended, which failed first and why. Pure but for `read_ends`. Standard library only."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast, get_args

from trainer.contract import layout
from trainer.contract.outcome import Line, Lines, RankEnd, Step
from trainer.contract.reasons import Reason
from trainer.contract.records import read_json
from trainer.supervision.launch_agent import AgentRecord
from trainer.supervision.progress import beat_of
from trainer.supervision.rank_process import RankProcess
from trainer.supervision.tracebacks import Raised, last_raised, reason_of

STOPPED = 143
OUT_OF_MEMORY = 76
_UNCAUGHT = 1
"""How Python leaves after an exception that nobody caught."""
_ENDED_BY_OTHERS = (-signal.SIGTERM, STOPPED)
_AT_THE_END_OF_TIME = float("inf")


@dataclass(frozen=True, kw_only=True)
class DatedEnd:
    """How a rank ended, and when."""

    end: RankEnd
    at: float
    early: bool = False
    """It exited 0, had not finished, and others were still there."""
    asked: bool = False
    """It had SIGTERM, as it says; the ranks then leave together."""

    @property
    def failed(self) -> bool:
        """True when it did not exit 0, did so early, or was never seen to end."""
        return self.end.exit_code != 0 or self.early


@dataclass(frozen=True, kw_only=True)
class OwnRecord:
    """What a rank wrote about itself before it left: `run/ranks/rank-N.json`."""

    reason: Line | None = None
    step: Step = 0
    exception: Line | None = None
    traceback: Lines | None = None
    asked: bool = False


def read_ends(
    box: Path,
    ranks: Iterable[int],
    processes: Iterable[RankProcess],
    agent: AgentRecord | None,
    *,
    training: bool = False,
) -> tuple[DatedEnd, ...]:
    """Read how each rank ended, from its process's record, its own record, its heartbeat and its log.

    `training`: the ranks are of the onboard trainer, which says when it has finished.
    """
    started = {process.rank: process for process in processes}
    ends = [_read_end(box, rank, started.get(rank), agent) for rank in ranks]
    torn = training and any(dated.end.exit_code != 0 for dated in ends)
    return tuple(replace(dated, early=torn and _is_early(dated.end)) for dated in ends)


def left_early(box: Path, process: RankProcess) -> bool:
    """Tell whether a rank of the onboard trainer exited 0 and had not finished."""
    return _is_early(_read_end(box, process.rank, process, None).end)


def _is_early(end: RankEnd) -> bool:
    return end.exit_code == 0 and end.reason != "finished" and end.activity != "done"


def _read_end(box: Path, rank: int, process: RankProcess | None, agent: AgentRecord | None) -> DatedEnd:
    code, at = _exit_of(rank, process, agent)
    own, beat = _own_record(box, rank), beat_of(box, rank)
    # Only of a rank that Python ended: elsewhere the last traceback of a log may be of an error long caught.
    raised = last_raised(box / layout.RAW_LOGS / f"rank-{rank}.log") if code == _UNCAUGHT else None
    raised = Raised(exception=own.exception, traceback=own.traceback or "") if own.exception else raised
    end = RankEnd(
        rank=rank,
        exit_code=code,
        signal=signal_name(code),
        reason=own.reason,
        exception=raised.exception if raised else None,
        traceback=raised.traceback if raised else None,
        step=max(own.step, beat.step if beat else 0),
        activity=beat.activity if beat else "",
    )
    return DatedEnd(end=end, at=at, asked=own.asked)


def _exit_of(rank: int, process: RankProcess | None, agent: AgentRecord | None) -> tuple[int | None, float]:
    if process is not None and process.exit_code is not None:
        return process.exit_code, process.ended_at or _AT_THE_END_OF_TIME
    for failure in agent.failures if agent else ():
        if failure.rank == rank:
            return failure.exit_code, failure.at
    return None, _AT_THE_END_OF_TIME


def _own_record(box: Path, rank: int) -> OwnRecord:
    try:
        text = (box / layout.RANKS / f"rank-{rank}.json").read_text(encoding="utf-8")
        return cast(OwnRecord, read_json(OwnRecord, text))
    except (OSError, ValueError):
        return OwnRecord()


def first_failure(ends: Sequence[DatedEnd], killed: Collection[int]) -> DatedEnd | None:
    """Return the failure that the others followed from; `killed` are the ranks that the supervisor killed.

    A rank whose connection broke is a victim when another failed for a reason of its own, whoever was first.
    """
    failed = [dated for dated in ends if dated.failed]
    own = [d for d in failed if not (d.end.exit_code is None or _brought_down(d.end, killed))]
    return min(own or failed, key=_comes_late, default=None)


def _comes_late(dated: DatedEnd) -> tuple[bool, bool, float]:
    """Order failures, the first one lowest.

    Connections break after what broke them, and the one asked to stop asks others.
    """
    return reason_of_end(dated.end) == "communication", not dated.asked, dated.at


def told(ends: Sequence[DatedEnd], first: DatedEnd | None, killed: Collection[int]) -> tuple[RankEnd, ...]:
    """Return the ends as the outcome tells them: marked are those that others brought about.

    A rank that was never seen to end had not begun, or hardly, when the `first` one took all down.
    """
    killed = {*killed, *(d.end.rank for d in ends if first is not None and d.end.exit_code is None)}
    return tuple(replace(d.end, ended_by_us=d is not first and _brought_down(d.end, killed)) for d in ends)


def reason_of_end(end: RankEnd, *, memory_killed: bool = False) -> Reason:
    """Say why a rank failed. `memory_killed`: the kernel killed something for want of memory meanwhile."""
    sigkill = end.exit_code == -signal.SIGKILL or (
        end.reason == "signal" and "SIGKILL" in (end.exception or "")
    )
    if end.exit_code == OUT_OF_MEMORY or (memory_killed and sigkill):
        return "oom"
    if end.signal is not None:
        return "signal"
    if end.reason in get_args(Reason) and end.reason != "finished":
        return cast(Reason, end.reason)
    return reason_of(end.exception) if end.exception else "error"


def _brought_down(end: RankEnd, killed: Collection[int]) -> bool:
    return end.exit_code != 0 and (end.rank in killed or end.exit_code in _ENDED_BY_OTHERS)


def signal_name(exit_code: int | None) -> str | None:
    """Name of the signal that an exit code stands for."""
    if exit_code is None or exit_code >= 0:
        return None
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"
