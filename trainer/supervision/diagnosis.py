"""Diagnosis: how one group of ranks ended, and why, from what was watched and what lies on the disk.

Standard library only.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainer.contract import layout
from trainer.contract.outcome import Hang, RankEnd
from trainer.contract.reasons import Reason
from trainer.distributed.nodes import Place
from trainer.supervision.launch_agent import AgentRecord
from trainer.supervision.rank_ends import DatedEnd, first_failure, read_ends, reason_of_end, signal_name, told
from trainer.supervision.rank_process import RankProcess
from trainer.supervision.stop import stopped_by
from trainer.supervision.tracebacks import last_raised


@dataclass(frozen=True, kw_only=True)
class Watched:
    """What the supervisor saw of a launch from its beginning to its end."""

    started_at: float
    world_size: int
    training: bool
    """The onboard trainer ran: a rank of its own accord leaves with 0 only when it has finished."""
    processes: tuple[RankProcess, ...]
    agent: AgentRecord | None
    agent_exit: int | None
    killed: frozenset[int] = frozenset()
    """Ranks that the supervisor killed."""
    hang: Hang | None = None
    stop_cause: str | None = None
    stopped_at: float | None = None
    """When the ranks were asked to stop."""
    memory_killed: bool = False
    """The kernel killed something for want of memory meanwhile."""
    disk_full: bool = False
    """There was no room left when the ranks had ended."""
    place: Place = field(default_factory=Place)
    elsewhere: tuple[DatedEnd, ...] = ()
    """How the ranks of the other nodes ended."""
    lost: tuple[int, ...] = ()
    """Nodes that could not be reached any more."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """How a launch ended."""

    reason: Reason
    detail: str
    ranks: tuple[RankEnd, ...]
    first_failure: RankEnd | None


def diagnose(box: Path, watched: Watched) -> Diagnosis:
    """Find out what happened, and to which rank."""
    ends = (*ends_here(box, watched), *watched.elsewhere)
    first = first_failure(ends, watched.killed)
    blamed = first if first is not None and _blamed(first, watched) else None
    reason, detail = _reason(box, ends, first, watched)
    return Diagnosis(
        reason=reason,
        detail=detail,
        ranks=tuple(sorted(told(ends, blamed, watched.killed), key=lambda end: end.rank)),
        first_failure=blamed.end if blamed else None,
    )


def ends_here(box: Path, watched: Watched) -> tuple[DatedEnd, ...]:
    """Return how the ranks of this node ended."""
    ranks = watched.place.ranks(watched.world_size // watched.place.nodes)
    return read_ends(box, ranks, watched.processes, watched.agent, training=watched.training)


def _blamed(first: DatedEnd, watched: Watched) -> bool:
    """Tell whether a rank failed by itself: not because it hung, or was asked to stop."""
    if watched.hang is not None or first.end.exit_code is None:
        return False
    return watched.stopped_at is None or first.at < watched.stopped_at


def _reason(
    box: Path, ends: Sequence[DatedEnd], first: DatedEnd | None, watched: Watched
) -> tuple[Reason, str]:
    """Return the class of what happened, and one line about it."""
    if watched.hang is not None:
        return "hang", _hang_line(watched.hang)
    if watched.lost and (first is None or reason_of_end(first.end) == "communication"):
        return "communication", f"node {', '.join(map(str, watched.lost))} can no longer be reached"
    if first is None:
        return "finished", f"all {len(ends)} ranks exited 0"
    if _blamed(first, watched):
        reason = reason_of_end(first.end, memory_killed=watched.memory_killed)
        if reason == "stopped":
            return reason, f"rank {first.end.rank} had SIGTERM from outside of this run; {_saved(ends)}"
        if reason == "error" and watched.disk_full:  # nothing could be written about it, and nothing else
            return "disk", f"{_failure_line(first.end, reason, watched)}; the disk is full"
        return reason, _failure_line(first.end, reason, watched)
    if watched.stop_cause is not None:
        return "stopped", _stop_line(ends, watched)
    return _agent_reason(watched), _agent_line(box, watched)


def _hang_line(hang: Hang) -> str:
    where = _where(hang.step, hang.activity)
    frame = f", in {hang.frame}" if hang.frame else ""
    # When all wait, what they wait in is where it went wrong.
    all_wait = hang.in_collective and len(hang.waits) > 1
    apart = f"; waiting: {', '.join(hang.waits)}" if all_wait else ""
    return f"rank {hang.rank} made no progress for {hang.stalled_s:.0f} s{where}{frame}{apart}"


def _failure_line(end: RankEnd, reason: Reason, watched: Watched) -> str:
    where, who = _where(end.step, end.activity), f"rank {end.rank}"
    if reason == "oom" and end.signal:
        return f"{who} was killed by the kernel (out of memory){where}"
    if end.signal:
        return f"{who} was killed by {end.signal}{where}"
    if end.exception and reason == "error" and not watched.training:
        return f"your program raised {end.exception} ({who}{where})"
    if end.exception:
        return f"{who} failed{where}: {end.exception}"
    if end.exit_code == 0:
        return f"{who} exited with code 0{where} before the training was done"
    return f"{who} exited with code {end.exit_code}{where}"


def _stop_line(ends: Sequence[DatedEnd], watched: Watched) -> str:
    why = stopped_by(watched.stop_cause)
    late = [str(rank) for rank in sorted(watched.killed)]
    if late:
        return f"{why}; did not exit in time and was killed: rank {', '.join(late)}"
    return f"{why}; {_saved(ends)}"


def _saved(dated: Sequence[DatedEnd]) -> str:
    """Say what became of the work of ranks that were asked to stop."""
    ends = [each.end for each in dated]
    unsaved = [str(end.rank) for end in ends if end.reason == "stopped" and end.exception]
    if unsaved:
        ranks = f"rank {', '.join(unsaved)}"
        return f"{ranks} could not save in time: what was done since the last checkpoint is lost"
    saved = all(end.reason in ("stopped", "finished") for end in ends)
    return "checkpoint saved" if saved else "all ranks exited in time"


def _agent_reason(watched: Watched) -> Reason:
    if watched.memory_killed and watched.agent_exit == -signal.SIGKILL:
        return "oom"
    return "error" if signal_name(watched.agent_exit) is None else "signal"


def _agent_line(box: Path, watched: Watched) -> str:
    raised = last_raised(box / layout.AGENT_LOG)
    code = watched.agent_exit
    how = raised.exception if raised else signal_name(code) or f"exit code {code}"
    started = "after it had started the ranks" if watched.processes else "before any rank started"
    return f"the launch agent failed {started}: {how}"


def _where(step: int, activity: str) -> str:
    if not step and not activity:
        return ""
    return f" at step {step}" + (f" ({activity})" if activity not in ("", "step") else "")
