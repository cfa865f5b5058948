"""drive(run): the seven steps in order. Reaches the world through ports only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from launcher import policy
from launcher.errors import (
    GoneError,
    HeldError,
    ProviderError,
    StorageError,
    UnreachableError,
    VastrunError,
)
from launcher.job import JobSpec
from launcher.model import Cause, Phase, Run, Wish
from launcher.phases import NEXT, Result
from launcher.renting import choose, look_for_it, rent_anew
from launcher.trip import End, Tools, Trip
from launcher.verdict import Evidence, judge
from launcher.watch import watch
from trainer import layout

_PATIENCE_S = 300.0
_PAUSE_S = 2.0
_UNPACK_TIMEOUT_S = 600.0
_OK = End(result=Result.OK)
_T = TypeVar("_T")


def begin(
    spec: JobSpec,
    spec_json: str,
    tools: Tools,
    *,
    run_id: str,
    out_dir: str,
    parent: str | None = None,
) -> Run:
    """A new run, with its row, in phase `plan`. Nothing was asked of the provider yet."""
    now = tools.clock.now()
    run = Run(
        id=run_id,
        job=spec.name,
        spec_json=spec_json,
        provider=tools.provider.name,
        phase=Phase.PLAN,
        out_dir=out_dir,
        created_at=now,
        phase_at=now,
        parent=parent,
    )
    tools.ledger.add(run)
    return run


def drive(run: Run, spec: JobSpec, tools: Tools) -> Run:
    """The run, driven until it ended, was detached (in `train`) or could not be torn down (in `destroy`).

    Raises StorageError and HeldError; the row then stands as it was, and the lease guards the machine.
    """
    trip = Trip(run, spec, tools)
    trip.hold()
    if run.destroy_tries:
        trip.save(destroy_tries=0)
    try:
        while trip.run.phase is not Phase.ENDED and trip.run.destroy_tries < policy.DESTROY_TRIES:
            end = _take(trip)
            if end is None:
                break
            _advance(trip, end)
    finally:
        trip.hang_up()
        tools.ledger.release(run.id, tools.who)
    return trip.run


def plan(trip: Trip) -> End:
    """Everything that can be wrong on this computer is found here, before any money is spent."""
    tools = trip.tools
    tools.shelf.check(trip.run)
    tools.packer.secrets(trip.spec)
    parcel = tools.packer.pack(trip.run, trip.spec)
    offer = choose(trip.spec, tools.provider)[0]
    trip.save(offer=offer, usd_per_hour=offer.usd_per_hour, host=offer.host)
    worst = policy.worst_case_usd(trip.spec, offer)
    hours = policy.lease_of(trip.spec, offer).life_s / 3600
    trip.tell(
        f"{offer.description} at ${offer.usd_per_hour:.3f}/h; at most ${worst:.2f} and {hours:.3g} h; "
        f"{parcel.size / 1e6:.1f} MB to ship"
    )
    return _OK


def rent(trip: Trip) -> End:
    """A machine carries this run's label. Looks for it first, so that it is safe to repeat."""
    machine = look_for_it(trip) or rent_anew(trip)
    trip.save(instance_id=machine.id, usd_per_hour=machine.usd_per_hour, host=machine.host or trip.run.host)
    trip.tell(f"machine {machine.id}")
    return _OK


def boot(trip: Trip) -> End:
    """The box answers and its lease is armed. Nothing is shipped to a box that cannot end itself."""
    began = answered = trip.now()
    lease = "unknown"
    while trip.now() - began < policy.BOOT_S:
        if _stopping(trip):
            return _stopped("before its machine was ready")
        try:
            lease = look_at_lease(trip)
            if lease == "armed":
                trip.tell("the lease is armed")
                return _OK
            if trip.now() - answered > policy.LEASE_PROOF_S:
                return End(
                    result=Result.FAILED, cause=Cause.HOST, detail=f"the lease is not armed but {lease}"
                )
        except (UnreachableError, GoneError) as error:
            trip.hang_up()
            answered = trip.now()
            if isinstance(error, GoneError) and trip.is_gone():
                return _lost("while it booted")
        trip.wait(_PAUSE_S / 4)
    return End(result=Result.FAILED, cause=Cause.HOST, detail=f"not ready after {policy.BOOT_S:.0f} s")


def look_at_lease(trip: Trip) -> str:
    """The state of the box's lease, as its state file says; the onstart scripts are not there yet."""
    text = trip.remote().read(layout.LEASE_STATE).decode("utf-8", "replace")
    facts = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return facts.get("state", "not there")


def ship(trip: Trip) -> End:
    """The bundle and the secrets are on the box, unpacked."""
    parcel = trip.tools.packer.pack(trip.run, trip.spec)
    secrets = trip.tools.packer.secrets(trip.spec)

    def send() -> None:
        remote = trip.remote()
        remote.put(parcel.path, layout.INBOX_BUNDLE)
        if secrets:
            remote.write(layout.INBOX_SECRETS, secrets, mode=0o600)
        done = remote.run(
            f"echo '{parcel.sha256}  {layout.INBOX_BUNDLE}' | sha256sum -c --quiet - && "
            f"tar -xzf {layout.INBOX_BUNDLE} && : >{layout.SHIPPED}",
            timeout_s=_UNPACK_TIMEOUT_S,
        )
        if done.exit_code != 0:
            raise ProviderError(f"the bundle cannot be unpacked on the box: {done.stderr.strip()[-300:]}")

    _patiently(trip, send)
    trip.tell(f"{parcel.size / 1e6:.1f} MB")
    return _OK


def train(trip: Trip) -> End | None:
    """The training is over, or left alone."""
    return watch(trip)


def collect(trip: Trip) -> End:
    """Logs, checkpoints and outputs are on this computer, checked; the last judgement is made."""
    if trip.wish() is Wish.DESTROY:
        return End(result=Result.FAILED, cause=Cause.STOPPED, detail="destroyed at once, as asked")
    collected = _patiently(trip, lambda: trip.tools.shelf.collect(trip.run, trip.remote()))
    trip.remote().write(layout.COLLECTED, b"")
    evidence = Evidence(
        outcome_json=collected.outcome_json,
        steps_jsonl=collected.steps_jsonl,
        exit_code=collected.exit_code,
        damaged=collected.damaged,
    )
    judgement = judge(evidence, trip.spec)
    trip.save(proofs=judgement.proofs)
    trip.tell(f"{collected.files} files, {collected.bytes / 1e6:.1f} MB")
    result = Result.FAILED if collected.damaged else Result.OK
    return End(result=result, cause=judgement.cause, detail=judgement.detail)


def destroy(trip: Trip) -> End:
    """The provider said twice that it has no such machine."""
    trip.hang_up()
    machines = trip.machines()
    for machine in machines:
        trip.tools.provider.destroy(machine.id)
    if not trip.is_gone():
        return End(result=Result.FAILED, detail="the machine is still there")
    if not machines and trip.run.instance_id is None:
        trip.save(rented_at=None)
    elif trip.run.offer is not None:
        life_s = policy.lease_of(trip.spec, trip.run.offer).life_s
        trip.save(released_at=policy.released_at(trip.run, life_s, trip.now(), found=bool(machines)))
    trip.tell("the machine is gone, seen twice" if machines else "there is no machine, seen twice")
    return _OK


STEPS: Mapping[Phase, Callable[[Trip], End | None]] = {
    Phase.PLAN: plan,
    Phase.RENT: rent,
    Phase.BOOT: boot,
    Phase.SHIP: ship,
    Phase.TRAIN: train,
    Phase.COLLECT: collect,
    Phase.DESTROY: destroy,
}

_BEFORE_TRAINING = (Phase.PLAN, Phase.RENT, Phase.BOOT, Phase.SHIP)


def _take(trip: Trip) -> End | None:
    """The end of the present step, whatever it raises. A fault of ours must not leave a machine rented."""
    try:
        if trip.run.phase in _BEFORE_TRAINING and _stopping(trip):
            return _stopped(f"before it could {trip.run.phase.value}")
        return STEPS[trip.run.phase](trip)
    except (StorageError, HeldError):
        raise
    except GoneError as error:
        if trip.run.phase is not Phase.DESTROY and trip.is_gone():
            return _lost(f"in phase {trip.run.phase.value}")
        return End(result=Result.FAILED, cause=Cause.HOST, detail=str(error))
    except VastrunError as error:
        return End(result=Result.FAILED, cause=error.cause, detail=str(error))
    except Exception as error:  # noqa: BLE001 - the one place: see above
        detail = f"{type(error).__name__}: {error}"
        return End(result=Result.FAILED, cause=Cause.INTERNAL, detail=detail)


def _advance(trip: Trip, end: End) -> None:
    """The row moves on as the table says; the first cause stays."""
    run, now = trip.run, trip.now()
    changes = {"phase": NEXT[run.phase][end.result], "phase_at": now}
    destroying = run.phase is Phase.DESTROY
    if run.cause is None and end.cause is not None and not destroying:
        changes |= {"cause": end.cause, "detail": end.detail}
    if destroying and end.result is not Result.OK:
        changes |= {"destroy_tries": run.destroy_tries + 1}
    if changes["phase"] is Phase.ENDED:
        changes |= {"ended_at": now}
    if end.result is not Result.OK:
        trip.tell(f"{end.result.value}: {end.detail}")
    trip.save(**changes)
    if destroying and end.result is not Result.OK:
        trip.wait(min(60.0, 2.0**trip.run.destroy_tries))


def _patiently(trip: Trip, action: Callable[[], _T]) -> _T:
    """What `action` returns, tried again while the box only fails to answer."""
    began = trip.now()
    while True:
        try:
            return action()
        except (UnreachableError, GoneError) as error:
            trip.hang_up()
            if isinstance(error, GoneError) and trip.is_gone():
                raise
            if trip.now() - began > _PATIENCE_S or trip.wish() is Wish.DESTROY:
                raise
            trip.wait(_PAUSE_S)


def _stopping(trip: Trip) -> bool:
    return trip.wish() in (Wish.STOP, Wish.DESTROY)


def _stopped(when: str) -> End:
    return End(result=Result.FAILED, cause=Cause.STOPPED, detail=f"stopped {when}")


def _lost(when: str) -> End:
    return End(result=Result.LOST, cause=Cause.LOST, detail=f"the machine vanished {when}")
