"""Watch: follows a training on its box until it is over or lost."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from vastrun.contract import layout
from vastrun.launcher.core import BoxStatus, Cause, Phase, UserRequest
from vastrun.launcher.core.errors import BoxError, GoneError, ProviderError, SliceOverError, UnreachableError
from vastrun.launcher.core.market import ENDED
from vastrun.launcher.decisions import policy
from vastrun.launcher.decisions.nodes import STOP_S, have_reached
from vastrun.launcher.flow.context import RunContext
from vastrun.launcher.flow.lease_expiry import gone_result, set_deadline
from vastrun.launcher.flow.lease_watch import LeaseWatch
from vastrun.launcher.flow.live_download import LiveDownloads, download_checkpoint_slice, download_metrics
from vastrun.launcher.flow.node_sync import send_node_env
from vastrun.launcher.flow.pace import report_slow_machine
from vastrun.launcher.flow.progress import ProgressReport
from vastrun.launcher.flow.run_end import end_of_training
from vastrun.launcher.flow.run_state import Detached, PhaseResult, failed
from vastrun.launcher.gate.box_reader import fetch_status
from vastrun.launcher.ports import Remote

_LOG_INTERVAL_S = 0.25
"""Seconds between two downloads of the log: a status costs the box more than a read."""
_SEEMS_OVER_INTERVAL_S = 0.1
"""Seconds between two looks for the exit code while the log grows after the last step."""
_EARLY_POLL_S = 0.2
"""Seconds between two polls of a box that has news, or will have some at once."""
_UNTIL_METERED_S = 10.0
"""Seconds until the provider is first asked what the machine costs: the log waits for its answer, and the
machine was listed when it was reached."""
_START_TIMEOUT_S = 60.0


@dataclass
class WatchState:
    """State of the watch between two polls of the box."""

    lease: LeaseWatch
    starts: int = 0
    listed_at: float = 0.0
    dead_since: float | None = None
    invalid_since: float | None = None
    stop_asked_at: float | None = None
    stop_cause: Cause = Cause.STOPPED
    waits_for_nodes: bool = False
    """True while nothing is started because another node is not ready."""
    is_stopping_with_nodes: bool = False
    """True once it was asked to stop because another node has failed."""
    node_failed_at: float | None = None
    is_evidence_late: bool = False
    """True once the evidence of the run's end came too slowly."""
    downloads: LiveDownloads = field(default_factory=LiveDownloads)
    progress: ProgressReport = field(default_factory=ProgressReport)


def watch(context: RunContext) -> PhaseResult:
    """Follow the training until it has ended. Raises Detached."""
    state = WatchState(lease=LeaseWatch(metering_due_at=context.now() + _UNTIL_METERED_S))
    while True:
        try:
            # Before the box is asked: one that answers slowly, or lies, must not lengthen a limit.
            context.raise_if_stopped()
            if (end := _poll_once(context, state)) is not None:
                return end
            leaves = context.user_request() is UserRequest.DETACH_ONCE_TRAINING and state.progress.has_started
            # A run that was started twice may be failing: the user has to see that.
            if leaves and state.starts <= 1:
                raise Detached
            _follow_log(context, state, _pause_s(context, state))
        except (UnreachableError, GoneError) as error:
            if (end := _no_answer(context, state, error)) is not None:
                return end
            context.wait(policy.POLL_INTERVAL_S)
        if (end := _past_limit(context, state)) is not None:
            return end


def _pause_s(context: RunContext, state: WatchState) -> float:
    """Return the seconds until the next poll."""
    # The first steps of a box take less than a second, and its log is not there yet to be seen growing.
    is_starting = state.starts > 0 and not state.progress.has_reported_step
    if state.downloads.got_slice or (is_starting and _is_read_along(context)):
        return _EARLY_POLL_S
    return policy.poll_interval_s(context.services.active_runs())


def _poll_once(context: RunContext, state: WatchState) -> PhaseResult | None:
    remote = context.remote()
    try:
        box_status = fetch_status(remote)
    except BoxError as error:
        return _invalid_status(context, state, error)
    context.machines.note_answer()
    state.invalid_since = None
    state.lease.observe(box_status, context.now())
    context.machines.traffic.observe(box_status)
    state.progress.save(context, box_status)
    state.lease.rearm_if_killed(context, box_status, remote)
    state.waits_for_nodes = box_status.box == "idle" and not have_reached(
        context.nodes.other_rows(), Phase.TRAIN
    )
    if box_status.box == "idle":
        return context.nodes.end() or (None if state.waits_for_nodes else _start(context, state, remote))
    state.progress.show(context, box_status)
    if box_status.box == "ended":
        return _ended(context, state, box_status, remote)
    if box_status.box == "dead":
        return _dead(context, state)
    # The first that applies names the cause of the run: what its user wants comes before any limit.
    asked_for = context.user_request().cause
    if asked_for is not None:
        _ask_to_stop(context, state, remote, asked_for)
    elif (end := context.nodes.end()) is not None and end.cause is not None:
        _stop_with_nodes(context, state, remote)
    elif policy.is_deadline_due(context.spec, context.run.offer, context.now()):
        _ask_to_stop(context, state, remote, Cause.TIME_LIMIT)
    elif state.lease.is_over_budget(context):
        _ask_to_stop(context, state, remote, Cause.MONEY_LIMIT)
    elif state.stop_asked_at is None and state.progress.has_started and context.nodes.is_alone:
        report_slow_machine(context, state.progress.pace)
    with context.time_slice():
        download_metrics(context, state.downloads, remote)  # the first: due seldom, and short
        download_checkpoint_slice(context, state.downloads, remote)
    return None


def _ended(
    context: RunContext, state: WatchState, box_status: BoxStatus, remote: Remote
) -> PhaseResult | None:
    """Return the result of a run that has ended; None: its evidence comes too slowly, and is read again."""
    context.has_program_ended = True
    try:
        return end_of_training(context, remote, box_status)
    except SliceOverError:
        if state.is_evidence_late:
            raise
        state.is_evidence_late = True  # this computer may have slept meanwhile
        return None


def _follow_log(context: RunContext, state: WatchState, seconds: float) -> None:
    """Show the log as it grows until the next poll. Returns early on a new user request, when the training
    seems over, or when the log has grown and only a poll may show it."""
    until, request = context.now() + seconds, context.user_request()
    # Where many runs are followed no user reads along: each poll brings its log, and that is enough.
    is_read_along = _is_read_along(context)
    pause_s = min(_LOG_INTERVAL_S, seconds) if is_read_along else seconds
    follows = state.progress.may_follow_log(context.spec)
    asked_at = context.now()
    while context.now() < until and context.user_request() is request:
        if not is_read_along:
            context.wait(pause_s)
            may_have_grown = follows
        elif follows:
            may_have_grown = _wait_for_growth(context, pause_s)
        else:
            may_have_grown = False
            context.has_log_grown()  # from now on it is seen
            context.wait(min(_EARLY_POLL_S, seconds))
            if context.has_log_grown():
                return
        if may_have_grown:
            context.services.screen.log(context.new_log())
        # The last line of a log comes just before the exit code.
        ask_after_s = _SEEMS_OVER_INTERVAL_S if may_have_grown else pause_s
        if state.progress.has_done_steps and context.now() - asked_at >= min(ask_after_s, pause_s):
            asked_at = context.now()
            if _seems_over(context):
                return


def _is_read_along(context: RunContext) -> bool:
    return policy.poll_interval_s(context.services.active_runs()) <= policy.POLL_INTERVAL_S


def _wait_for_growth(context: RunContext, seconds: float) -> bool:
    """Wait until the log has grown, at most `seconds`; where that is not seen, all of them. Return False when
    it has not grown."""
    until, request = context.now() + seconds, context.user_request()
    if context.has_log_grown() is None:
        context.wait(seconds)
        return True
    while context.now() < until and context.user_request() is request:
        context.wait(0.05)
        if context.has_log_grown() is not False:
            return True
    return False


def _seems_over(context: RunContext) -> bool:
    """Return whether an exit code exists on the box: a hint only, the next poll decides."""
    with suppress(BoxError, SliceOverError), context.time_slice():
        return bool(context.remote().read(layout.EXIT, limit=1))
    return False


def _start(context: RunContext, state: WatchState, remote: Remote) -> PhaseResult | None:
    if (cause := context.user_request().cause) is not None:
        return failed(cause, "stopped before the training began")
    if state.starts >= 3:
        return failed(Cause.HOST, "the run does not start on this machine")
    if state.starts == 0:
        set_deadline(context, remote)
        try:
            send_node_env(context, remote)
        except UnreachableError:
            machine = context.machines.own()
            if machine is not None and machine.state == ENDED:
                return gone_result(context)
            raise
    # Safe to repeat: a lock on the box lets one start through. An answer may have been lost on the way.
    state.starts += 1
    done = remote.run("bash onstart/run.sh start", timeout_s=_START_TIMEOUT_S)
    if done.exit_code != 0:
        return failed(Cause.HOST, f"run.sh start ended with {done.exit_code}: {done.stderr.strip()[-200:]}")
    return None


def _ask_to_stop(context: RunContext, state: WatchState, remote: Remote, cause: Cause) -> None:
    if state.stop_asked_at is not None:
        return
    remote.run(f"bash onstart/run.sh stop {cause}", timeout_s=_START_TIMEOUT_S)
    state.stop_asked_at, state.stop_cause = context.now(), cause
    context.report("stopping: the training saves a checkpoint")


def _stop_with_nodes(context: RunContext, state: WatchState, remote: Remote) -> None:
    """Stop this node because another one has failed: its own supervisor may not know that yet."""
    if not state.is_stopping_with_nodes:
        state.is_stopping_with_nodes = True
        remote.run(f"bash onstart/run.sh stop {Cause.STOPPED}", timeout_s=_START_TIMEOUT_S)
        context.report("stopping: another node of the run has failed")


def _dead(context: RunContext, state: WatchState) -> PhaseResult | None:
    """Return the result of a run that died without an exit code. The lease, if alive, writes one within
    DEAD_S."""
    now = context.now()
    state.dead_since = state.dead_since or now
    if now - state.dead_since < policy.DEAD_S:
        return None
    return failed(Cause.HOST, "the run on the machine died without an exit code")


def _invalid_status(context: RunContext, state: WatchState, error: BoxError) -> PhaseResult | None:
    """Return the result of a box whose status is invalid for INVALID_STATUS_S; None before that."""
    now = context.now()
    if state.invalid_since is None:
        state.invalid_since = now
        context.report(str(error))
    if now - state.invalid_since < policy.INVALID_STATUS_S:
        return None
    return failed(Cause.HOST, str(error))


def _no_answer(context: RunContext, state: WatchState, error: ProviderError) -> PhaseResult | None:
    """Return the result of a box that does not answer: lost only if the provider confirms twice that it is
    gone."""
    context.disconnect()
    now = context.now()
    if isinstance(error, GoneError) or now - state.listed_at >= 15.0:
        state.listed_at = now
        if context.machines.is_gone():
            return gone_result(context)
    context.machines.note_silence(error)
    return None


def _past_limit(context: RunContext, state: WatchState) -> PhaseResult | None:
    """Return the result of a box that should have ended by now: its lease and its supervisor did not act."""
    now = context.now()
    if (end := context.nodes.end()) is not None:
        state.node_failed_at = state.node_failed_at or now
        if now - state.node_failed_at > STOP_S:
            return end
    if state.stop_asked_at is not None and now - state.stop_asked_at > policy.STOP_S:
        return failed(state.stop_cause, "killed: it did not stop in time")
    lease_ends_at = state.lease.ends_at
    if context.run.offer is None or lease_ends_at is None or now <= lease_ends_at + policy.LIMIT_SLACK_S:
        return None
    cause = policy.lease_of(context.spec, context.run.offer).life_cause
    return failed(cause, "past the end of its lease, which did not destroy it")
