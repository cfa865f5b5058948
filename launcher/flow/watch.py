"""watch(trip): follows a training on its box until it is over, lost, or left alone."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field

from launcher.core import Cause, Sighting, Wish, bills
from launcher.core.errors import BoxError, GoneError, ProviderError, UnreachableError
from launcher.core.phases import Result
from launcher.decisions import policy
from launcher.decisions.judge import judge
from launcher.flow.beginning import Beginning
from launcher.flow.context import End, Trip
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


def watch(trip: Trip) -> End | None:
    """How the training ended; None when the user wants it left alone."""
    memory = Memory()
    while True:
        try:
            trip.must_go_on()
            end = _look_once(trip, memory)
            if end is not None:
                return end
            if _may_leave(trip, memory):
                return None
            _listen(trip, _SLICE_PAUSE_S if memory.saving.brought else LOOK_S)
        except (UnreachableError, GoneError) as error:
            end = _silent(trip, memory, error)
            if end is not None:
                return end
            trip.wait(LOOK_S)
        end = _overdue(trip, memory)
        if end is not None:
            return end


def _may_leave(trip: Trip, memory: Memory) -> bool:
    """The user wants it left alone, and it is in order."""
    wish = trip.wish()
    leaves = wish is Wish.DETACH or (wish is Wish.DETACH_ONCE_TRAINING and memory.beginning.has_begun)
    return leaves and memory.silent_since is None and memory.starts <= 1


def _look_once(trip: Trip, memory: Memory) -> End | None:
    remote = trip.remote()
    try:
        sighting = look(remote)
    except BoxError as error:
        return _nonsense(trip, memory, error)
    memory.silent_since = memory.nonsense_since = None
    _note(trip, memory, sighting)
    _keep_armed(trip, memory, sighting, remote)
    if sighting.box == "idle":
        return _start(trip, memory, remote)
    trip.show_log()
    if sighting.box == "ended":
        return _ended(trip, remote, sighting)
    if sighting.box == "dead":
        return _dead(trip, memory)
    if trip.wish() is Wish.STOP:
        _ask_to_stop(trip, memory, remote, Cause.STOPPED)
    elif _money_runs_out(trip, memory):
        _ask_to_stop(trip, memory, remote, Cause.MONEY_LIMIT)
    save_some(trip, memory.saving, remote)
    return None


def _listen(trip: Trip, seconds: float) -> None:
    """Until the next look, the log is shown as it grows. Ends at once when the user wants something new."""
    until, wish = trip.now() + seconds, trip.wish()
    while trip.now() < until and trip.wish() is wish:
        trip.wait(min(_LISTEN_S, seconds))
        trip.show_log()


def _note(trip: Trip, memory: Memory, sighting: Sighting) -> None:
    """Keeps the screen and the row up to date."""
    now = trip.now()
    if sighting.lease == "armed" and sighting.lease_ends_at is not None:
        memory.ends_by = now + sighting.lease_ends_at - sighting.at
    if sighting.onstart_step != memory.onstart_step:
        memory.onstart_step = sighting.onstart_step
        trip.tell(sighting.onstart_step)
    memory.pace.saw(min(sighting.step, planned_steps(trip.spec)), now)
    _tell_beginning(trip, memory, sighting)
    trip.show(progress_of(sighting, trip.spec, memory.pace, now))
    due = sighting.box == "ended" or now - memory.saved_at >= _SAVE_S
    if sighting.step != trip.run.step and due:
        memory.saved_at = now
        steps_per_s = memory.pace.steps_per_s or trip.run.steps_per_s
        trip.save(step=sighting.step, steps=last_step(trip.spec, sighting), steps_per_s=steps_per_s)


def _tell_beginning(trip: Trip, memory: Memory, sighting: Sighting) -> None:
    """What is done until the training begins is told, each thing once, and that it has begun."""
    activity = activity_of(sighting, trip.spec)
    had_begun = memory.beginning.has_begun
    memory.beginning.saw(sighting, trip.spec, trip.now())
    if memory.beginning.has_begun:
        if not had_begun:
            steps = last_step(trip.spec, sighting)
            of = f"step {sighting.step}{f' of {steps}' if steps else ''}"
            trip.tell(f"training: {of}" if knows_step(sighting) else "the program runs")
    elif activity not in ("", "running", sighting.onstart_step, *memory.told):
        memory.told.add(activity)
        trip.tell(activity)


def _keep_armed(trip: Trip, memory: Memory, sighting: Sighting, remote: Remote) -> None:
    """A lease that was killed is armed again. Of a box that says so again and again it is told once."""
    due = trip.now() - memory.rearmed_at >= policy.REARM_S
    if trip.machine is None or not is_disarmed(sighting) or not due:
        return
    first = memory.rearmed_at == -math.inf
    memory.rearmed_at = trip.now()
    how_it_went = rearm(trip.run, trip.spec, trip.machine, remote, trip.tools)
    if first:
        trip.tell(how_it_went)


def _start(trip: Trip, memory: Memory, remote: Remote) -> End | None:
    if trip.wish() in (Wish.STOP, Wish.DESTROY):
        return End(result=Result.FAILED, cause=Cause.STOPPED, detail="stopped before the training began")
    if memory.starts >= _STARTS:
        return End(result=Result.FAILED, cause=Cause.HOST, detail="the run does not start on this machine")
    memory.starts += 1
    done = remote.run("bash onstart/run.sh start", timeout_s=_START_TIMEOUT_S)
    if done.exit_code != 0:
        detail = f"run.sh start ended with {done.exit_code}: {done.stderr.strip()[-200:]}"
        return End(result=Result.FAILED, cause=Cause.HOST, detail=detail)
    return None


def _money_runs_out(trip: Trip, memory: Memory) -> bool:
    """The launcher's own lock on money: the lease counts hours, and knows nothing of traffic."""
    now = trip.now()
    if trip.tools.provider.free or 0 <= now - memory.metered_at < bills.WATCHED_S:
        return False
    memory.metered_at = now
    with suppress(ProviderError):
        trip.machines()
    ends_by = _lease_end(trip, memory)
    return ends_by is not None and policy.is_spent(trip.spec, trip.run, ends_by - now)


def _lease_end(trip: Trip, memory: Memory) -> float | None:
    """When the lease ends the box: by our own count, or earlier, as the box says."""
    if trip.run.offer is None:
        return None
    own = policy.lease_ends_at(trip.run, policy.lease_of(trip.spec, trip.run.offer))
    moments = (None if trip.has_come_late else own, memory.ends_by)
    return min((moment for moment in moments if moment is not None), default=None)


def _ask_to_stop(trip: Trip, memory: Memory, remote: Remote, cause: Cause) -> None:
    if memory.stop_asked_at is not None:
        return
    remote.run(f"bash onstart/run.sh stop {cause}", timeout_s=_START_TIMEOUT_S)
    memory.stop_asked_at, memory.stop_cause = trip.now(), cause
    trip.tell("stopping: the training saves a checkpoint")


def _ended(trip: Trip, remote: Remote, sighting: Sighting) -> End:
    """The run on the box is over: its own evidence says how."""
    outcome, steps = small_file(remote, layout.OUTCOME), small_file(remote, layout.STEPS)
    evidence = evidence_of(outcome, steps, sighting.exit_code)
    judgement = judge(evidence, trip.spec)
    planned = last_step(trip.spec, sighting) if trip.spec.train or knows_step(sighting) else 0
    trip.save(proofs=judgement.proofs, step=sighting.step, steps=planned)
    result = Result.OK if judgement.cause is None else Result.FAILED
    return End(result=result, cause=judgement.cause, detail=judgement.detail)


def _dead(trip: Trip, memory: Memory) -> End | None:
    """Nothing runs and no exit code was left. The lease writes one soon, if it lives."""
    now = trip.now()
    memory.dead_since = memory.dead_since or now
    if now - memory.dead_since < policy.DEAD_S:
        return None
    return End(
        result=Result.FAILED, cause=Cause.HOST, detail="the run on the machine died without an exit code"
    )


def _nonsense(trip: Trip, memory: Memory, error: BoxError) -> End | None:
    """What it says makes no sense; soon perhaps it does again."""
    now = trip.now()
    if memory.nonsense_since is None:
        memory.nonsense_since = now
        trip.tell(str(error))
    if now - memory.nonsense_since < policy.NONSENSE_S:
        return None
    return End(result=Result.FAILED, cause=Cause.HOST, detail=str(error))


def _silent(trip: Trip, memory: Memory, error: ProviderError) -> End | None:
    """Nobody answers. Lost only when the provider says twice that there is no such machine."""
    trip.hang_up()
    now = trip.now()
    if memory.silent_since is None:
        memory.silent_since = now
        trip.tell(f"the machine does not answer ({error}); the training continues there")
    if isinstance(error, GoneError) or now - memory.listed_at >= _LIST_S:
        memory.listed_at = now
        if trip.is_gone():
            return End(result=Result.LOST, cause=Cause.LOST, detail=_how_lost(trip))
    return None


def _how_lost(trip: Trip) -> str:
    offer, rented_at = trip.run.offer, trip.run.rented_at
    if offer is not None and rented_at is not None:
        lease = policy.lease_of(trip.spec, offer)
        if trip.now() >= rented_at + min(lease.life_s, lease.collect_s):
            return (
                "the machine no longer exists; its lease may have expired before the outputs were downloaded"
            )
    return "the machine no longer exists; the provider no longer lists it"


def _overdue(trip: Trip, memory: Memory) -> End | None:
    """What the box itself said is over: its lease and its supervisor should have acted by now."""
    now = trip.now()
    if memory.stop_asked_at is not None and now - memory.stop_asked_at > policy.STOP_S:
        return End(result=Result.FAILED, cause=memory.stop_cause, detail="killed: it did not stop in time")
    if trip.run.offer is None or memory.ends_by is None or now <= memory.ends_by + policy.LIMIT_SLACK_S:
        return None
    cause = policy.lease_of(trip.spec, trip.run.offer).life_cause
    return End(
        result=Result.FAILED, cause=cause, detail="past the end of its lease, which did not destroy it"
    )
