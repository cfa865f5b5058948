"""Diagnosis: how each rank of one start ended, which failed first, and why the start is over.

From what was watched and what lies on the disk. Pure but for what it reads there. Standard library only.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast, get_args

from vastrun.contract import layout
from vastrun.contract.outcome import REASONS, Hang, RankEnd, Reason
from vastrun.trainer.distributed.exit import (
    Raised,
    last_abort,
    last_raised,
    read_own_record,
    reason_of_abort,
    reason_of_text,
)
from vastrun.trainer.distributed.nodes import ThisNode
from vastrun.trainer.supervision.failure_line import (
    failure_line,
    lost_a_process,
    lost_process_line,
    peak_text,
    where_text,
)
from vastrun.trainer.supervision.launch_agent import AgentRecord
from vastrun.trainer.supervision.memory_counters import MemoryUse
from vastrun.trainer.supervision.native_stack import read_crash
from vastrun.trainer.supervision.progress import beat_of
from vastrun.trainer.supervision.rank_process import RankProcess
from vastrun.trainer.supervision.ranklogs import last_lines, lines_after
from vastrun.trainer.supervision.stop import stopped_by

_UNCAUGHT = 1
"""How Python leaves after an exception that nobody caught."""
_ENDED_BY_OTHERS = (-signal.SIGTERM, REASONS["stopped"].rank_exit_code)
_MAX_LINES_AFTER = 2
"""Lines after a traceback of which the last is reported too; more belong to the exception's message."""
_NO_LAST_LINES = (None, 0, *_ENDED_BY_OTHERS)
"""Exit codes of ranks that did not fail by themselves, or were not seen to."""
_FATAL = ("SIGILL", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGSEGV", "SIGTERM")
_SHELL_SIGNALS = {128 + signal.Signals[name]: name for name in _FATAL}
"""Exit codes of a shell, a script or a pipeline whose program a signal ended."""
_AT_THE_END_OF_TIME = 1e11
"""Later than any moment, and a number that JSON has: supervisors tell each other of such ranks, too."""


@dataclass(frozen=True, kw_only=True)
class DatedEnd:
    """How a rank ended, and when."""

    end: RankEnd
    at: float
    early: bool = False
    """It exited 0, had not finished, and others were still there."""
    asked: bool = False
    """It had SIGTERM, as it says; the ranks then leave together."""
    crash: str = ""
    """Native frame of a crash, and the file with its stacks; empty: nothing was kept."""

    @property
    def failed(self) -> bool:
        """True when it did not exit 0, did so early, or was never seen to end."""
        return self.end.exit_code != 0 or self.early


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
    stopped_at_step: int | None = None
    """Step that every rank had reported by then."""
    steps_needed: int | None = None
    """Step that every rank has to reach for a success, as the job says; None: it names none."""
    memory_killed: bool = False
    """The kernel killed something for want of memory meanwhile."""
    memory_killed_at: float | None = None
    """Time at which it last killed a process of this run; None: it did not, or it is not known."""
    memory_use: MemoryUse | None = None
    """Memory that was in use on this node; None: nothing was killed, or it is not known."""
    disk_full: bool = False
    """There was no room left when the ranks had ended."""
    this_node: ThisNode = field(default_factory=ThisNode)
    elsewhere: tuple[DatedEnd, ...] = ()
    """How the ranks of the other nodes ended."""
    departed: tuple[DatedEnd, ...] = ()
    """The same of nodes that left, and that the others could do without."""
    lost: tuple[int, ...] = ()
    """Nodes that could not be reached any more."""
    too_late: bool = False
    """This node came to join the others, and those were done before its ranks had a step."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """How a launch ended."""

    reason: Reason
    detail: str
    ranks: tuple[RankEnd, ...]
    first_failure: RankEnd | None
    stop_sent_at: float | None = None
    """Time at which running ranks were sent SIGTERM, in epoch seconds; None: never."""


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
        stop_sent_at=watched.stopped_at if _was_stop_sent(ends, watched) else None,
    )


def ends_here(box: Path, watched: Watched) -> tuple[DatedEnd, ...]:
    """Return how the ranks of this node ended."""
    ranks = watched.this_node.ranks(watched.world_size // watched.this_node.nodes)
    return read_ends(box, ranks, watched.processes, watched.agent, training=watched.training)


def _blamed(first: DatedEnd, watched: Watched) -> bool:
    """Tell whether a rank failed by itself: not because it hung, or was asked to stop."""
    if watched.hang is not None or watched.too_late or first.end.exit_code is None:
        return False
    if watched.lost and _brought_down(first.end, watched.killed):  # it would have gone on
        return False
    return watched.stopped_at is None or first.at < watched.stopped_at


def _follows_from_loss(first: DatedEnd, watched: Watched) -> bool:
    """Tell whether a rank failed as a node was lost: it missed its ranks, or was ended, or never began."""
    if first.end.exit_code is None or _brought_down(first.end, watched.killed):
        return True
    return reason_of_end(first.end) == "communication"


def _reason(
    box: Path, ends: Sequence[DatedEnd], first: DatedEnd | None, watched: Watched
) -> tuple[Reason, str]:
    """Return the class of what happened, and one line about it."""
    if watched.hang is not None:
        return "hang", _hang_line(watched.hang)
    if watched.too_late:
        return "stopped", "the training was over before this node joined it"
    if watched.lost and (first is None or _follows_from_loss(first, watched)):
        return "communication", f"node {', '.join(map(str, watched.lost))} can no longer be reached"
    if first is None and _exited_because_of_stop(ends, watched):
        return "stopped", _stop_line(ends, watched)
    if first is None:
        return "finished", "the rank exited 0" if len(ends) == 1 else f"all {len(ends)} ranks exited 0"
    if _blamed(first, watched):
        return _reason_of_rank(ends, first, watched)
    if watched.stop_cause is not None:
        return "stopped", _stop_line(ends, watched)
    return _agent_reason(watched), _agent_line(box, watched)


def _reason_of_rank(ends: Sequence[DatedEnd], first: DatedEnd, watched: Watched) -> tuple[Reason, str]:
    """Return why a rank failed that no other rank brought down, and one line about it."""
    end = first.end
    peaks = {process.rank: process.peak_bytes for process in watched.processes}
    peak = peak_text(watched.memory_use, peaks.get(end.rank))
    reason = reason_of_end(end, memory_killed=watched.memory_killed)
    killed_at, killed = watched.memory_killed_at, watched.memory_killed
    if lost_a_process(reason, end, first.at, killed_at=killed_at, killed_elsewhere=killed):
        return "oom", lost_process_line(end, peak)
    if reason == "stopped":
        return reason, f"rank {end.rank} had SIGTERM from outside of this run; {_saved(ends)}"
    line = failure_line(end, reason, training=watched.training, peak=peak, crash=first.crash)
    if reason == "error" and watched.disk_full:  # nothing could be written about it, and nothing else
        return "disk", f"{line}; the disk is full"
    return reason, line


def _was_stop_sent(ends: Sequence[DatedEnd], watched: Watched) -> bool:
    """Tell whether a rank had not ended when the ranks were asked to stop."""
    return watched.stopped_at is not None and any(dated.at >= watched.stopped_at for dated in ends)


def _exited_because_of_stop(ends: Sequence[DatedEnd], watched: Watched) -> bool:
    """Tell whether ranks that all exited 0 did so because of a stop.

    The onboard trainer exits 0 only when it has finished. Another program may save and exit 0 at any step:
    it had finished only if all ranks had reported the last step before the stop.
    """
    if watched.training or watched.stop_cause is None or not _was_stop_sent(ends, watched):
        return False
    return watched.steps_needed is None or (watched.stopped_at_step or 0) < watched.steps_needed


def _hang_line(hang: Hang) -> str:
    where = where_text(hang.step, hang.activity)
    frame = f", in {hang.frame}" if hang.frame else ""
    # When all wait, what they wait in is where it went wrong.
    all_wait = hang.in_collective and len(hang.waits) > 1
    apart = f"; waiting: {', '.join(hang.waits)}" if all_wait else ""
    return f"rank {hang.rank} made no progress for {hang.stalled_s:.0f} s{where}{frame}{apart}"


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
    ends = [_read_end(box, rank, started.get(rank), agent, training=training) for rank in ranks]
    torn = training and any(dated.end.exit_code != 0 for dated in ends)
    return tuple(replace(dated, early=torn and _is_early(dated.end)) for dated in ends)


def left_early(box: Path, process: RankProcess) -> bool:
    """Tell whether a rank of the onboard trainer exited 0 and had not finished."""
    return _is_early(_read_end(box, process.rank, process, None, training=True).end)


def _is_early(end: RankEnd) -> bool:
    return end.exit_code == 0 and end.reason != "finished" and end.activity != "done"


def _read_end(
    box: Path, rank: int, process: RankProcess | None, agent: AgentRecord | None, *, training: bool
) -> DatedEnd:
    code, at = _exit_of(rank, process, agent)
    own, beat = read_own_record(box, rank), beat_of(box, rank)
    # A rank that wrote why it ended chose its exit code.
    has_shell = not training and own.reason is None
    name = signal_name(code) or (_SHELL_SIGNALS.get(code or 0) if has_shell else None)
    # Only of a rank that Python ended: elsewhere the last traceback of a log may be of an error long caught.
    read = last_abort if name == "SIGABRT" else last_raised if code == _UNCAUGHT else None
    log = box / layout.RAW_LOGS / f"rank-{rank}.log"
    raised = read(log) if read else None
    raised = Raised(exception=own.exception, traceback=own.traceback or "") if own.exception else raised
    crash = read_crash(box, rank) if name and not training else None
    after = lines_after(log, raised) if raised and code == _UNCAUGHT and not own.exception else None
    if after and after.is_reason:
        raised = None  # it was caught, and the program ended for another reason
    printed = last_lines(log) if raised is None and code not in _NO_LAST_LINES else None
    end = RankEnd(
        rank=rank,
        exit_code=code,
        signal=name,
        reason=own.reason,
        exception=raised.exception if raised else None,
        traceback=raised.traceback if raised else crash.stacks if crash else None,
        last_lines=after.text if raised and after and after.count <= _MAX_LINES_AFTER else printed,
        step=max(own.step, beat.step if beat else 0),
        activity=beat.activity if beat else "",
    )
    return DatedEnd(end=end, at=at, asked=own.asked, crash=str(crash or ""))


def _exit_of(rank: int, process: RankProcess | None, agent: AgentRecord | None) -> tuple[int | None, float]:
    if process is not None and process.exit_code is not None:
        return process.exit_code, process.ended_at or _AT_THE_END_OF_TIME
    for failure in agent.failures if agent else ():
        if failure.rank == rank:
            return failure.exit_code, failure.at
    return None, _AT_THE_END_OF_TIME


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
    sigkill = end.signal == "SIGKILL" or (end.reason == "signal" and "SIGKILL" in (end.exception or ""))
    if end.exit_code == REASONS["oom"].rank_exit_code or (memory_killed and sigkill):
        return "oom"
    if end.signal is not None:
        aborted = end.signal == "SIGABRT"
        return reason_of_abort(end.exception) if aborted and end.exception else "signal"
    if end.reason in get_args(Reason) and end.reason != "finished":
        return cast(Reason, end.reason)
    return reason_of_text(end.exception) if end.exception else "error"


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
