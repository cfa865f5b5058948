"""watch(trip): follows a training on its box until it is over, lost, or left alone."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from launcher import policy
from launcher.errors import GoneError, ProviderError, UnreachableError
from launcher.flow.pace import Pace
from launcher.flow.saving import Saving, save_some
from launcher.flow.sight import look
from launcher.flow.trip import End, Trip
from launcher.model import Cause, Sighting, Wish
from launcher.phases import Result
from launcher.ports import Remote
from launcher.verdict import Evidence, judge
from trainer import layout

LOOK_S = 1.0
_LISTEN_S = 0.25
"""Between two pulls of the log: a look asks more of the box than a read does."""
_SLICE_PAUSE_S = 0.2
"""Between two slices of a checkpoint: a look costs the box a little, too."""
_LIST_S = 15.0
_SAVE_S = 5.0
_STARTS = 3
_START_TIMEOUT_S = 60.0
_SMALL_FILE = 8 << 20


@dataclass
class Memory:
    """What the watcher remembers between two looks."""

    starts: int = 0
    silent_since: float | None = None
    listed_at: float = 0.0
    dead_since: float | None = None
    ends_by: float | None = None
    """When the lease ends the box, as the box itself says, on our clock."""
    stop_asked_at: float | None = None
    stop_cause: Cause = Cause.STOPPED
    metered_at: float = 0.0
    saved_at: float = 0.0
    onstart_step: str = ""
    saving: Saving = field(default_factory=Saving)
    pace: Pace = field(default_factory=Pace)


def watch(trip: Trip) -> End | None:
    """How the training ended; None when the user wants it left alone."""
    memory = Memory()
    while True:
        try:
            end = _look_once(trip, memory)
            if end is not None:
                return end
            if trip.wish() is Wish.DETACH and memory.silent_since is None and memory.starts <= 1:
                return None
            _listen(trip, _SLICE_PAUSE_S if memory.saving.brought else LOOK_S)
        except (UnreachableError, GoneError) as error:
            end = _silent(trip, memory, error)
            if end is not None:
                return end
            trip.wait(LOOK_S)
        if trip.wish() is Wish.DESTROY:
            return End(result=Result.FAILED, cause=Cause.STOPPED, detail="destroyed at once, as asked")
        end = _overdue(trip, memory)
        if end is not None:
            return end


def read_text(remote: Remote, path: str) -> str | None:
    """A small text file of the box; None when it is not there or empty."""
    content = b""
    while len(content) < _SMALL_FILE:
        more = remote.read(path, offset=len(content))
        if not more:
            break
        content += more
    return content.decode("utf-8", "replace") or None


def _look_once(trip: Trip, memory: Memory) -> End | None:
    remote = trip.remote()
    sighting = look(remote)
    memory.silent_since = None
    _note(trip, memory, sighting)
    if sighting.box == "idle":
        return _start(trip, memory, remote)
    trip.tools.screen.log(trip.tools.shelf.pump(trip.run, remote))
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
        trip.tools.screen.log(trip.tools.shelf.pump(trip.run, trip.remote()))


def _note(trip: Trip, memory: Memory, sighting: Sighting) -> None:
    """Keeps the screen and the row up to date."""
    now = trip.now()
    trip.tools.screen.progress(trip.run, loss=sighting.loss, usd=policy.cost_usd(trip.run, now))
    if sighting.lease == "armed" and sighting.lease_ends_at is not None:
        memory.ends_by = now + sighting.lease_ends_at - sighting.at
    if sighting.onstart_step != memory.onstart_step:
        memory.onstart_step = sighting.onstart_step
        trip.tell(sighting.onstart_step)
    memory.pace.saw(sighting)
    due = sighting.box == "ended" or now - memory.saved_at >= _SAVE_S
    if sighting.step != trip.run.step and due:
        memory.saved_at = now
        steps_per_s = memory.pace.steps_per_s or trip.run.steps_per_s
        trip.save(step=sighting.step, steps=sighting.steps, steps_per_s=steps_per_s)


def _start(trip: Trip, memory: Memory, remote: Remote) -> End | None:
    if trip.wish() in (Wish.STOP, Wish.DESTROY):
        return End(result=Result.FAILED, cause=Cause.STOPPED, detail="stopped before the training began")
    if memory.starts >= _STARTS:
        return End(result=Result.FAILED, cause=Cause.HOST, detail="the run does not start on this box")
    memory.starts += 1
    done = remote.run("bash onstart/run.sh start", timeout_s=_START_TIMEOUT_S)
    if done.exit_code != 0:
        detail = f"run.sh start ended with {done.exit_code}: {done.stderr.strip()[-200:]}"
        return End(result=Result.FAILED, cause=Cause.HOST, detail=detail)
    return None


def _money_runs_out(trip: Trip, memory: Memory) -> bool:
    """The launcher's own lock on money: the lease counts hours, and knows nothing of traffic."""
    now = trip.now()
    if trip.tools.provider.free or 0 <= now - memory.metered_at < policy.WATCHED_S:
        return False
    memory.metered_at = now
    with suppress(ProviderError):
        trip.machines()
    return memory.ends_by is not None and policy.is_spent(trip.spec, trip.run, memory.ends_by - now)


def _ask_to_stop(trip: Trip, memory: Memory, remote: Remote, cause: Cause) -> None:
    if memory.stop_asked_at is not None:
        return
    remote.run(f"bash onstart/run.sh stop {cause}", timeout_s=_START_TIMEOUT_S)
    memory.stop_asked_at, memory.stop_cause = trip.now(), cause
    trip.tell("asked to save a checkpoint and stop")


def _ended(trip: Trip, remote: Remote, sighting: Sighting) -> End:
    """The run on the box is over: its own evidence says how."""
    evidence = Evidence(
        outcome_json=read_text(remote, layout.OUTCOME),
        steps_jsonl=read_text(remote, layout.STEPS),
        exit_code=sighting.exit_code,
    )
    judgement = judge(evidence, trip.spec)
    trip.save(proofs=judgement.proofs, step=sighting.step, steps=sighting.steps)
    result = Result.OK if judgement.cause is None else Result.FAILED
    return End(result=result, cause=judgement.cause, detail=judgement.detail)


def _dead(trip: Trip, memory: Memory) -> End | None:
    """Nothing runs and no exit code was left. The lease writes one soon, if it lives."""
    now = trip.now()
    memory.dead_since = memory.dead_since or now
    if now - memory.dead_since < policy.DEAD_S:
        return None
    return End(result=Result.FAILED, cause=Cause.HOST, detail="the run on the box died and left no exit code")


def _silent(trip: Trip, memory: Memory, error: ProviderError) -> End | None:
    """Nobody answers. Lost only when the provider says twice that there is no such machine."""
    trip.hang_up()
    now = trip.now()
    if memory.silent_since is None:
        memory.silent_since = now
        trip.tell(f"the box does not answer ({error}); it goes on by itself")
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
            return "the machine is gone; its lease may have ended before anybody collected the outputs"
    return "the machine is gone; the provider no longer lists it"


def _overdue(trip: Trip, memory: Memory) -> End | None:
    """The launcher's own lock on time: the lease and the supervisor should have acted by now.

    The box knows best how long it has lived: this computer's clock may have been set since it was rented.
    """
    now, run = trip.now(), trip.run
    if memory.stop_asked_at is not None and now - memory.stop_asked_at > policy.STOP_S:
        return End(
            result=Result.FAILED, cause=memory.stop_cause, detail="stopped; it did not end by itself in time"
        )
    if run.offer is None:
        return None
    lease = policy.lease_of(trip.spec, run.offer)
    ends_by = memory.ends_by
    if ends_by is None:
        ends_by = max(policy.lease_ends_at(run, lease) or now, memory.silent_since or 0.0)
    if now > ends_by + policy.LIMIT_SLACK_S:
        detail = "past its limit, and its lease has not ended it"
        return End(result=Result.FAILED, cause=lease.life_cause, detail=detail)
    return None
