"""Diagnosis: determine how each rank of one start ended, which failed first, and why the start is over.

From the observed launch and the files of its ranks, which it only reads. Standard library only.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast, get_args

from vastrun.contract import layout, outcome, reports
from vastrun.onstart.logged_error import Raised, last_abort, last_raised
from vastrun.onstart.nodes import ThisNode
from vastrun.onstart.supervision.failure_causes import (
    Failure,
    failure_line,
    measured_cause,
    signal_of,
    uncaught_of,
    where_text,
)
from vastrun.onstart.supervision.native_stack import read_crash
from vastrun.onstart.supervision.progress import beat_of
from vastrun.onstart.supervision.rank_process import RankProcess
from vastrun.onstart.supervision.ranklogs import last_lines
from vastrun.onstart.supervision.stop import stop_text

_UNCAUGHT = 1
"""Exit code of Python after an uncaught exception."""
_STOP_EXIT_CODES = (-signal.SIGTERM, outcome.REASONS["stopped"].rank_exit_code)
_OF_COLLECTIVES = re.compile("NCCL|collective|timeout")
"""Matches why NCCL's watchdog aborted a process, if the collectives failed; else a kernel on the GPU did."""
_OWN_REASONS: tuple[outcome.Reason, ...] = ("data", "diverged", "gate_missed", "stopped", "oom")
"""Reasons that a program knows better than any measurement."""
_NO_LAST_LINES = (None, 0, *_STOP_EXIT_CODES)
"""Exit codes of ranks that did not fail, or whose failure was not observed."""
_UNKNOWN_TIME = 1e11
"""Epoch seconds of an end that was not observed: later than any other, and finite, as supervisors send it as
JSON."""


@dataclass(frozen=True, kw_only=True)
class TimedRankEnd:
    end: outcome.RankEnd
    at: float
    """Epoch seconds."""
    early: bool = False
    """True when it exited 0 before it had finished, while other ranks were running."""
    asked: bool = False
    """True when it reported a SIGTERM; all ranks then exit."""
    crash: str = ""
    """Native frame of a crash, and the file with its stacks; empty: nothing was recorded."""
    measured: outcome.Reason | None = None
    """Reason that the measurements of its machine prove; None: none."""
    fact: str = ""
    """The measurement that proves it; empty without one."""

    @property
    def failed(self) -> bool:
        """True when it did not exit 0, exited early, or its end was not observed."""
        return self.end.exit_code != 0 or self.early


@dataclass(frozen=True, kw_only=True)
class ObservedLaunch:
    """The supervisor's observations of a launch from start to end."""

    started_at: float
    world_size: int
    training: bool
    """True for the onboard trainer, whose ranks exit 0 only when they have finished."""
    processes: tuple[RankProcess, ...] = ()
    agent_exit: int | None = None
    killed: frozenset[int] = frozenset()
    """Ranks that the supervisor killed."""
    hang: outcome.Hang | None = None
    stop_cause: str | None = None
    stopped_at: float | None = None
    """Epoch seconds at which the ranks were asked to stop."""
    stopped_at_step: int | None = None
    """Step that every rank had reached by then."""
    steps_needed: int | None = None
    """Step that every rank must reach for a success, from the job; None: not required."""
    reading: outcome.MachineReading | None = None
    """Measured here once a rank had failed or a file system was full; None: neither."""
    idle_gpus: outcome.IdleGpus | None = None
    """Longest period in which the GPUs here worked less than half of the time; None: none was seen."""
    nested_ranks: str = ""
    """Ranks that a rank started; empty: none were seen."""
    this_node: ThisNode = field(default_factory=ThisNode)
    elsewhere: tuple[TimedRankEnd, ...] = ()
    """Ends of the ranks of the other nodes."""
    lost: tuple[int, ...] = ()
    """Nodes that could no longer be reached."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The conclusion on a launch."""

    reason: outcome.Reason
    detail: str
    ranks: tuple[outcome.RankEnd, ...]
    first_failure: outcome.RankEnd | None
    stop_sent_at: float | None = None
    """Epoch seconds at which running ranks were sent SIGTERM; None: never."""


def diagnose(box: Path, observed: ObservedLaunch) -> Diagnosis:
    """Determine what happened, and to which rank."""
    ends = (*ends_here(box, observed), *observed.elsewhere)
    first = first_failure(ends, observed.killed)
    blamed = first if first is not None and _failed_on_its_own(first, observed) else None
    reason, detail = _reason(box, ends, first, observed)
    return Diagnosis(
        reason=reason,
        detail=detail,
        ranks=tuple(sorted(mark_ended_by_us(ends, blamed, observed.killed), key=lambda end: end.rank)),
        first_failure=blamed.end if blamed else None,
        stop_sent_at=observed.stopped_at if _was_stop_sent(ends, observed) else None,
    )


def ends_here(box: Path, observed: ObservedLaunch) -> tuple[TimedRankEnd, ...]:
    """Read the ends of this node's ranks from their process records, own records, heartbeats and logs."""
    started = {process.rank: process for process in observed.processes}
    ranks = observed.this_node.ranks(observed.world_size // observed.this_node.nodes)
    processes = [started.get(rank, RankProcess(rank=rank, pid=0, started_at=0.0)) for rank in ranks]
    ends = [_read_end(box, process, training=observed.training) for process in processes]
    any_failed = observed.training and any(dated.end.exit_code != 0 for dated in ends)
    ends = [replace(dated, early=any_failed and _is_early(dated.end)) for dated in ends]
    if observed.reading is None:
        return tuple(ends)
    with_pids = zip(ends, (process.pid for process in processes), strict=True)
    return tuple(_with_measured(box, dated, pid, observed.reading) for dated, pid in with_pids)


def _with_measured(box: Path, dated: TimedRankEnd, pid: int, reading: outcome.MachineReading) -> TimedRankEnd:
    """Add the reason that the measurements prove to the end of a rank that failed."""
    end = dated.end
    reason = reason_of_end(end)
    if not end.exit_code or reason in _OWN_REASONS:
        return dated
    raised = uncaught_of(box, end.rank, pid, dated.at)
    measured, fact = measured_cause(Failure(end=end, at=dated.at, raised=raised, reading=reading))
    if measured is None and reason == "device" and reading.gpu_faults == ():
        measured, fact = "error", "the GPUs of this machine respond, and none reports an error"
    return replace(dated, measured=measured, fact=fact)


def _failed_on_its_own(first: TimedRankEnd, observed: ObservedLaunch) -> bool:
    """Tell whether a rank failed on its own: not in a hang, nor after a stop request."""
    if observed.hang is not None or first.end.exit_code is None:
        return False
    if observed.lost and _was_ended(first.end, observed.killed):  # it would have continued
        return False
    return observed.stopped_at is None or first.at < observed.stopped_at


def _follows_from_loss(first: TimedRankEnd, observed: ObservedLaunch) -> bool:
    """Tell whether a rank failed because a node was lost: no connection, ended by us, or never started."""
    if first.end.exit_code is None or _was_ended(first.end, observed.killed):
        return True
    return reason_of_end(first.end) == "communication"


def _reason(
    box: Path, ends: Sequence[TimedRankEnd], first: TimedRankEnd | None, observed: ObservedLaunch
) -> tuple[outcome.Reason, str]:
    """Return the reason of the launch's end, and one line about it."""
    if observed.hang is not None:
        return "hang", _hang_line(observed.hang) + _left_text(ends)
    if observed.lost and (first is None or _follows_from_loss(first, observed)):
        return "communication", f"node {', '.join(map(str, observed.lost))} can no longer be reached"
    if first is None and _exited_because_of_stop(ends, observed):
        return "stopped", _stop_line(ends, observed)
    if first is None:
        return "finished", "the rank exited 0" if len(ends) == 1 else f"all {len(ends)} ranks exited 0"
    if _failed_on_its_own(first, observed):
        end = first.end
        reason = first.measured or reason_of_end(end)
        if reason == "stopped":
            return reason, f"rank {end.rank} received SIGTERM from outside of this run; {_saved(ends)}"
        line = failure_line(end, reason, training=observed.training, crash=first.crash)
        if reason == "communication" and (left := _left_text(each for each in ends if each.at <= first.at)):
            return "error", line + left
        return reason, f"{line}; {first.fact}" if first.fact else line
    if observed.stop_cause is not None:
        return "stopped", _stop_line(ends, observed)
    raised, code = last_raised(box / layout.AGENT_LOG), observed.agent_exit
    how = raised.exception if raised else signal_of(code) or f"exit code {code}"
    started = "after it had started the ranks" if observed.processes else "before any rank started"
    line = f"the launch agent failed {started}: {how}"
    if observed.reading is not None and observed.reading.memory_killed and code == -signal.SIGKILL:
        return "oom", line
    return "error" if signal_of(code) is None else "signal", line


def _left_text(ends: Iterable[TimedRankEnd]) -> str:
    """Name the ranks that were done while others still waited for them; empty where there are none."""
    left = ", ".join(str(each.end.rank) for each in ends if each.end.exit_code == 0)
    return f"; rank {left} had exited with code 0: the ranks did not do the same work" if left else ""


def _was_stop_sent(ends: Sequence[TimedRankEnd], observed: ObservedLaunch) -> bool:
    """Tell whether a rank was still running when the ranks were asked to stop."""
    return observed.stopped_at is not None and any(dated.at >= observed.stopped_at for dated in ends)


def _exited_because_of_stop(ends: Sequence[TimedRankEnd], observed: ObservedLaunch) -> bool:
    """Tell whether ranks that all exited 0 did so because of a stop.

    The onboard trainer exits 0 only when it has finished. Another program may save and exit 0 at any step:
    it had finished only if all ranks had reached the last step before the stop.
    """
    if observed.training or observed.stop_cause is None or not _was_stop_sent(ends, observed):
        return False
    return observed.steps_needed is None or (observed.stopped_at_step or 0) < observed.steps_needed


def _hang_line(hang: outcome.Hang) -> str:
    where = where_text(hang.step, hang.activity)
    frame = f", in {hang.frame}" if hang.frame else ""
    # When all ranks wait, the collectives that they wait in show the fault.
    all_wait = hang.in_collective and len(hang.waits) > 1
    apart = f"; waiting: {', '.join(hang.waits)}" if all_wait else ""
    return f"rank {hang.rank} made no progress for {hang.stalled_s:.0f} s{where}{frame}{apart}"


def _stop_line(ends: Sequence[TimedRankEnd], observed: ObservedLaunch) -> str:
    why = stop_text(observed.stop_cause)
    late = [str(rank) for rank in sorted(observed.killed)]
    if late:
        return f"{why}; did not exit in time and was killed: rank {', '.join(late)}"
    return f"{why}; {_saved(ends)}"


def _saved(dated: Sequence[TimedRankEnd]) -> str:
    """Say whether the ranks saved after the stop request."""
    ends = [each.end for each in dated]
    failed = [str(end.rank) for end in ends if end.reason == "stopped" and end.exception]
    if failed:
        ranks = f"rank {', '.join(failed)}"
        return f"{ranks} could not save in time: the steps since the last checkpoint are lost"
    saved = all(end.reason in ("stopped", "finished") for end in ends)
    return "checkpoint saved" if saved else "all ranks exited in time"


def left_early(box: Path, process: RankProcess) -> bool:
    """Tell whether a rank of the onboard trainer exited 0 before it had finished."""
    return _is_early(_read_end(box, process, training=True).end)


def _is_early(end: outcome.RankEnd) -> bool:
    return end.exit_code == 0 and end.reason != "finished" and end.activity != "done"


def _read_end(box: Path, process: RankProcess, *, training: bool) -> TimedRankEnd:
    rank, code, at = process.rank, process.exit_code, process.ended_at or _UNKNOWN_TIME
    own, beat = reports.read_rank_record(box, rank), beat_of(box, rank)
    # A rank that wrote its reason chose its exit code.
    has_shell = not training and own.reason is None
    name = signal_of(code) if has_shell or (code or 0) < 0 else None
    log = box / layout.RAW_LOGS / f"rank-{rank}.log"
    uncaught = uncaught_of(box, rank, process.pid, at) if code and not own.exception else None
    if uncaught and name and uncaught.signal == name:
        uncaught = None  # the exit code says it already
    lines = None if code in _NO_LAST_LINES else last_lines(log)
    raised: Raised | None
    if own.exception:
        raised, lines = Raised(exception=own.exception, traceback=own.traceback or ""), None
    elif uncaught:
        raised = Raised(exception=uncaught.line, traceback=uncaught.traceback)
        lines = None if uncaught.traceback else lines
    else:
        raised = last_abort(log) if name == "SIGABRT" else last_raised(log) if code == _UNCAUGHT else None
        if raised and name is None and raised.exception not in (lines or ""):
            raised = None  # the program went on after it
    crash, stacks = read_crash(box, rank) if name and not training else ("", None)
    end = outcome.RankEnd(
        rank=rank,
        exit_code=code,
        signal=name,
        reason=own.reason or (uncaught.reason if uncaught else None),
        exception=raised.exception if raised else None,
        traceback=raised.traceback if raised else stacks,
        last_lines=lines,
        step=max(own.step, beat.step if beat else 0),
        activity=beat.activity if beat else "",
    )
    return TimedRankEnd(end=end, at=at, asked=own.asked, crash=crash)


def first_failure(ends: Sequence[TimedRankEnd], killed: Collection[int]) -> TimedRankEnd | None:
    """Return the failure that caused the others; `killed` are the ranks that the supervisor killed.

    A rank whose connection broke is a victim when another failed for a different reason, in any order.
    """
    failed = [dated for dated in ends if dated.failed]
    own = [d for d in failed if not (d.end.exit_code is None or _was_ended(d.end, killed))]

    def order(dated: TimedRankEnd) -> tuple[bool, bool, float]:
        # Connections break after their cause, and a rank that received SIGTERM stops the others.
        return reason_of_end(dated.end) == "communication", not dated.asked, dated.at

    return min(own or failed, key=order, default=None)


def mark_ended_by_us(
    ends: Sequence[TimedRankEnd], first: TimedRankEnd | None, killed: Collection[int]
) -> tuple[outcome.RankEnd, ...]:
    """Return the ends for the outcome, with `ended_by_us` set on those that another rank caused.

    A rank whose end was not observed had barely started when the `first` one ended all.
    """
    killed = {*killed, *(d.end.rank for d in ends if first is not None and d.end.exit_code is None)}
    return tuple(replace(d.end, ended_by_us=d is not first and _was_ended(d.end, killed)) for d in ends)


def reason_of_end(end: outcome.RankEnd) -> outcome.Reason:
    """Return the reason of a failure by the exit code, the signal and what was raised."""
    if end.exit_code == outcome.REASONS["oom"].rank_exit_code:
        return "oom"
    if end.signal is not None:
        aborted = end.signal == "SIGABRT" and end.exception is not None
        return "communication" if aborted and _OF_COLLECTIVES.search(end.exception or "") else "signal"
    if end.reason in get_args(outcome.Reason) and end.reason != "finished":
        return cast(outcome.Reason, end.reason)
    return "error"


def _was_ended(end: outcome.RankEnd, killed: Collection[int]) -> bool:
    return end.exit_code != 0 and (end.rank in killed or end.exit_code in _STOP_EXIT_CODES)
