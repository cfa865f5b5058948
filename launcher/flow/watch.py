"""watch(context): follows a training on its box until it is over, lost, or left alone."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field

from launcher.core import BoxStatus, Cause, UserRequest, bills
from launcher.core.errors import BoxError, GoneError, ProviderError, UnreachableError
from launcher.core.phases import Result
from launcher.decisions import policy
from launcher.decisions.judge import judge
from launcher.flow.beginning import Beginning
from launcher.flow.context import End, RunContext
from launcher.flow.pace import Pace
from launcher.flow.progress import activity_of, knows_step, last_step, planned_steps, progress_of
from launcher.flow.rearming import is_disarmed, rearm
from launcher.flow.saving import Saving, save_some
from launcher.gate.evidence import evidence_of
from launcher.gate.reading import look, small_file
from launcher.ports import Remote
from trainer.contract import layout

LOOK_S = 1.0
_LISTEN_S = 0.25
"""Between two pulls of the log: a look asks more of the box than a read does."""
_SLICE_PAUSE_S = 0.2
"""Between two slices of a checkpoint: a look costs the box a little, too."""
_LIST_S = 15.0
_SAVE_S = 5.0
_STARTS = 3
_START_TIMEOUT_S = 60.0


@dataclass
class Memory:
    """What the watcher remembers between two looks."""

    starts: int = 0
    silent_since: float | None = None
    listed_at: float = 0.0
    dead_since: float | None = None
    nonsense_since: float | None = None
    rearmed_at: float = -math.inf
    ends_by: float | None = None
    """When the lease ends the box, as the box itself says, on our clock: it may shorten its time."""
    stop_asked_at: float | None = None
    stop_cause: Cause = Cause.STOPPED
    metered_at: float = 0.0
    saved_at: float = 0.0
    onstart_step: str = ""
    saving: Saving = field(default_factory=Saving)
    pace: Pace = field(default_factory=Pace)
    beginning: Beginning = field(default_factory=Beginning)
    told: set[str] = field(default_factory=set)
    """What was said to be done before the training began."""


def watch(context: RunContext) -> End | None:
    """How the training ended; None when the user wants it left alone."""
    memory = Memory()
    while True:
        try:
            context.must_go_on()
            end = _look_once(context, memory)
            if end is not None:
                return end
            if _may_leave(context, memory):
                return None
            _listen(context, _SLICE_PAUSE_S if memory.saving.brought else LOOK_S)
        except (UnreachableError, GoneError) as error:
            end = _silent(context, memory, error)
            if end is not None:
                return end
            context.wait(LOOK_S)
        end = _overdue(context, memory)
        if end is not None:
            return end


def _may_leave(context: RunContext, memory: Memory) -> bool:
    """The user wants it left alone, and it is in order."""
    request = context.user_request()
    leaves = request is UserRequest.DETACH or (
        request is UserRequest.DETACH_ONCE_TRAINING and memory.beginning.has_begun
    )
    return leaves and memory.silent_since is None and memory.starts <= 1


def _look_once(context: RunContext, memory: Memory) -> End | None:
    remote = context.remote()
    try:
        box_status = look(remote)
    except BoxError as error:
        return _nonsense(context, memory, error)
    memory.silent_since = memory.nonsense_since = None
    _note(context, memory, box_status)
    _keep_armed(context, memory, box_status, remote)
    if box_status.box == "idle":
        return _start(context, memory, remote)
    context.show_log()
    if box_status.box == "ended":
        return _ended(context, remote, box_status)
    if box_status.box == "dead":
        return _dead(context, memory)
    if context.user_request() is UserRequest.STOP:
        _ask_to_stop(context, memory, remote, Cause.STOPPED)
    elif _money_runs_out(context, memory):
        _ask_to_stop(context, memory, remote, Cause.MONEY_LIMIT)
    save_some(context, memory.saving, remote)
    return None


def _listen(context: RunContext, seconds: float) -> None:
    """Until the next look, the log is shown as it grows. Ends at once when the user wants something new."""
    until, request = context.now() + seconds, context.user_request()
    while context.now() < until and context.user_request() is request:
        context.wait(min(_LISTEN_S, seconds))
        context.show_log()


def _note(context: RunContext, memory: Memory, box_status: BoxStatus) -> None:
    """Keeps the screen and the row up to date."""
    now = context.now()
    if box_status.lease == "armed" and box_status.lease_ends_at is not None:
        memory.ends_by = now + box_status.lease_ends_at - box_status.at
    if box_status.onstart_step != memory.onstart_step:
        memory.onstart_step = box_status.onstart_step
        context.tell(box_status.onstart_step)
    memory.pace.saw(min(box_status.step, planned_steps(context.spec)), now)
    _tell_beginning(context, memory, box_status)
    context.show(progress_of(box_status, context.spec, memory.pace, now))
    due = box_status.box == "ended" or now - memory.saved_at >= _SAVE_S
    if box_status.step != context.run.step and due:
        memory.saved_at = now
        steps_per_s = memory.pace.steps_per_s or context.run.steps_per_s
        context.save(step=box_status.step, steps=last_step(context.spec, box_status), steps_per_s=steps_per_s)


def _tell_beginning(context: RunContext, memory: Memory, box_status: BoxStatus) -> None:
    """What is done until the training begins is told, each thing once, and that it has begun."""
    activity = activity_of(box_status, context.spec)
    had_begun = memory.beginning.has_begun
    memory.beginning.saw(box_status, context.spec, context.now())
    if memory.beginning.has_begun:
        if not had_begun:
            steps = last_step(context.spec, box_status)
            of = f"step {box_status.step}{f' of {steps}' if steps else ''}"
            context.tell(f"training: {of}" if knows_step(box_status) else "the program runs")
    elif activity not in ("", "running", box_status.onstart_step, *memory.told):
        memory.told.add(activity)
        context.tell(activity)


def _keep_armed(context: RunContext, memory: Memory, box_status: BoxStatus, remote: Remote) -> None:
    """A lease that was killed is armed again. Of a box that says so again and again it is told once."""
    due = context.now() - memory.rearmed_at >= policy.REARM_S
    if context.machine is None or not is_disarmed(box_status) or not due:
        return
    first = memory.rearmed_at == -math.inf
    memory.rearmed_at = context.now()
    how_it_went = rearm(context.run, context.spec, context.machine, remote, context.services)
    if first:
        context.tell(how_it_went)


def _start(context: RunContext, memory: Memory, remote: Remote) -> End | None:
    if context.user_request() in (UserRequest.STOP, UserRequest.DESTROY):
        return End(result=Result.FAILED, cause=Cause.STOPPED, detail="stopped before the training began")
    if memory.starts >= _STARTS:
        return End(result=Result.FAILED, cause=Cause.HOST, detail="the run does not start on this machine")
    memory.starts += 1
    done = remote.run("bash onstart/run.sh start", timeout_s=_START_TIMEOUT_S)
    if done.exit_code != 0:
        detail = f"run.sh start ended with {done.exit_code}: {done.stderr.strip()[-200:]}"
        return End(result=Result.FAILED, cause=Cause.HOST, detail=detail)
    return None


def _money_runs_out(context: RunContext, memory: Memory) -> bool:
    """The launcher's own lock on money: the lease counts hours, and knows nothing of traffic."""
    now = context.now()
    if context.services.provider.free or 0 <= now - memory.metered_at < bills.WATCHED_S:
        return False
    memory.metered_at = now
    with suppress(ProviderError):
        context.machines()
    ends_by = _lease_end(context, memory)
    return ends_by is not None and policy.is_spent(context.spec, context.run, ends_by - now)


def _lease_end(context: RunContext, memory: Memory) -> float | None:
    """When the lease ends the box: by our own count, or earlier, as the box says."""
    if context.run.offer is None:
        return None
    own = policy.lease_ends_at(context.run, policy.lease_of(context.spec, context.run.offer))
    moments = (None if context.has_come_late else own, memory.ends_by)
    return min((moment for moment in moments if moment is not None), default=None)


def _ask_to_stop(context: RunContext, memory: Memory, remote: Remote, cause: Cause) -> None:
    if memory.stop_asked_at is not None:
        return
    remote.run(f"bash onstart/run.sh stop {cause}", timeout_s=_START_TIMEOUT_S)
    memory.stop_asked_at, memory.stop_cause = context.now(), cause
    context.tell("stopping: the training saves a checkpoint")


def _ended(context: RunContext, remote: Remote, box_status: BoxStatus) -> End:
    """The run on the box is over: its own evidence says how."""
    outcome, steps = small_file(remote, layout.OUTCOME), small_file(remote, layout.STEPS)
    evidence = evidence_of(outcome, steps, box_status.exit_code)
    judgement = judge(evidence, context.spec)
    planned = last_step(context.spec, box_status) if context.spec.train or knows_step(box_status) else 0
    context.save(proofs=judgement.proofs, step=box_status.step, steps=planned)
    result = Result.OK if judgement.cause is None else Result.FAILED
    return End(result=result, cause=judgement.cause, detail=judgement.detail)


def _dead(context: RunContext, memory: Memory) -> End | None:
    """Nothing runs and no exit code was left. The lease writes one soon, if it lives."""
    now = context.now()
    memory.dead_since = memory.dead_since or now
    if now - memory.dead_since < policy.DEAD_S:
        return None
    return End(
        result=Result.FAILED, cause=Cause.HOST, detail="the run on the machine died without an exit code"
    )


def _nonsense(context: RunContext, memory: Memory, error: BoxError) -> End | None:
    """What it says makes no sense; soon perhaps it does again."""
    now = context.now()
    if memory.nonsense_since is None:
        memory.nonsense_since = now
        context.tell(str(error))
    if now - memory.nonsense_since < policy.NONSENSE_S:
        return None
    return End(result=Result.FAILED, cause=Cause.HOST, detail=str(error))


def _silent(context: RunContext, memory: Memory, error: ProviderError) -> End | None:
    """Nobody answers. Lost only when the provider says twice that there is no such machine."""
    context.hang_up()
    now = context.now()
    if memory.silent_since is None:
        memory.silent_since = now
        context.tell(f"the machine does not answer ({error}); the training continues there")
    if isinstance(error, GoneError) or now - memory.listed_at >= _LIST_S:
        memory.listed_at = now
        if context.is_gone():
            return End(result=Result.LOST, cause=Cause.LOST, detail=_how_lost(context))
    return None


def _how_lost(context: RunContext) -> str:
    offer, rented_at = context.run.offer, context.run.rented_at
    if offer is not None and rented_at is not None:
        lease = policy.lease_of(context.spec, offer)
        if context.now() >= rented_at + min(lease.life_s, lease.collect_s):
            return (
                "the machine no longer exists; its lease may have expired before the outputs were downloaded"
            )
    return "the machine no longer exists; the provider no longer lists it"


def _overdue(context: RunContext, memory: Memory) -> End | None:
    """What the box itself said is over: its lease and its supervisor should have acted by now."""
    now = context.now()
    if memory.stop_asked_at is not None and now - memory.stop_asked_at > policy.STOP_S:
        return End(result=Result.FAILED, cause=memory.stop_cause, detail="killed: it did not stop in time")
    if context.run.offer is None or memory.ends_by is None or now <= memory.ends_by + policy.LIMIT_SLACK_S:
        return None
    cause = policy.lease_of(context.spec, context.run.offer).life_cause
    return End(
        result=Result.FAILED, cause=cause, detail="past the end of its lease, which did not destroy it"
    )
