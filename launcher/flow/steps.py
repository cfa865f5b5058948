"""The seven steps. Each ends with a result that the phase table knows; each is safe to repeat."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from launcher.core import Cause, Meter, Phase, Wish, bills
from launcher.core.errors import GoneError, NoRoomError, ProviderError, StorageError, UnreachableError
from launcher.core.phases import Result
from launcher.decisions import policy
from launcher.decisions.estimates import offer_text
from launcher.decisions.judge import judge
from launcher.flow.booting import boot, unlike_its_offer
from launcher.flow.context import End, OverError, Trip
from launcher.flow.renting import choose_for, look_for_it, rent_anew
from launcher.flow.watch import watch
from launcher.ports import KeepsKeys, Noisy
from trainer.contract import layout

_PATIENCE_S = 300.0
_PAUSE_S = 2.0
_UNPACK_TIMEOUT_S = 600.0
_OK = End(result=Result.OK)
_T = TypeVar("_T")


def plan(trip: Trip) -> End:
    """Everything that can be wrong on this computer is found here, before any money is spent."""
    tools = trip.tools
    tools.shelf.check(trip.run)
    tools.packer.secrets(trip.spec)
    if tools.notifier is not None:
        tools.notifier.check(trip.spec)
    parcel = tools.packer.pack(trip.run, trip.spec)
    offer = choose_for(trip)[0]
    trip.save(offer=offer, usd_per_hour=offer.usd_per_hour, host=offer.host)
    trip.tell(f"{offer_text(trip.spec, offer)}; {parcel.size / 1e6:.1f} MB to ship")
    return _OK


def rent(trip: Trip) -> End:
    """A machine carries this run's label. Looks for it first, so that it is safe to repeat."""
    asked_at = trip.now()
    machine = look_for_it(trip) or rent_anew(trip)
    trip.save(
        instance_id=machine.id,
        usd_per_hour=machine.usd_per_hour,
        host=machine.host or trip.run.host,
        image=machine.image or trip.run.image,
        rented_at=bills.rented_at(trip.run, machine, trip.now()),
        meter=Meter(extras=machine.extras),
    )
    trip.meter(machine, max(asked_at, trip.run.rented_at or asked_at))
    trip.tell(f"machine {machine.id}")
    return unlike_its_offer(trip, machine) or _OK


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
            raise ProviderError(f"the bundle cannot be unpacked on the machine: {done.stderr.strip()[-300:]}")

    _patiently(trip, send)
    trip.tell(f"{parcel.size / 1e6:.1f} MB")
    return _OK


def train(trip: Trip) -> End | None:
    """The training is over, or left alone."""
    return watch(trip)


def collect(trip: Trip) -> End:
    """Logs, checkpoints and outputs are on this computer, checked; the last judgement is made."""
    collected = _with_room(
        trip, lambda: _patiently(trip, lambda: trip.tools.shelf.collect(trip.run, trip.remote()))
    )
    # The box may end itself soon. It need not hear of it: what counts is home.
    with suppress(UnreachableError, GoneError):
        trip.remote().write(layout.COLLECTED, b"")
        _tell_noise(trip)
    judgement = judge(collected.evidence, trip.spec)
    trip.save(proofs=judgement.proofs)
    trip.tell(f"{collected.files} files, {collected.bytes / 1e6:.1f} MB")
    for path, name in collected.renamed.items():
        trip.tell(f"{path} was saved as {name}: another file has its name")
    result = Result.FAILED if collected.evidence.damaged else Result.OK
    return End(result=result, cause=judgement.cause, detail=judgement.detail)


def destroy(trip: Trip) -> End:
    """The provider said twice that it has no machine of this run."""
    trip.hang_up()
    trip.look_closely()
    machine = trip.own_machine()
    # Also where the provider shows none: what it shows may be late.
    machine_id = machine.id if machine else trip.run.instance_id
    if machine_id is not None:
        trip.tools.provider.destroy(machine_id)
    if machine is not None and trip.run.meter.given_back_at is None:
        _note_given_back(trip)
    looked_at = trip.now()
    if not trip.is_clear():
        return End(result=Result.FAILED, detail="the machine still exists")
    if isinstance(trip.tools.provider, KeepsKeys):  # also where the machine ended without us
        trip.tools.provider.forget(trip.run.id)
    if machine_id is None:
        trip.save(rented_at=None)
    elif trip.run.offer is not None:
        life_s = policy.lease_of(trip.spec, trip.run.offer).life_s
        trip.save(released_at=policy.released_at(trip.run, life_s, looked_at))
    trip.tell("machine destroyed (confirmed twice)" if machine else "no machine exists (confirmed twice)")
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


def _note_given_back(trip: Trip) -> None:
    # A disk that is full must not keep the launcher from the proof that the machine is gone.
    with suppress(StorageError):
        trip.save(meter=replace(trip.run.meter, given_back_at=trip.now()))


def _tell_noise(trip: Trip) -> None:
    connection = trip.remote().connection
    if isinstance(connection, Noisy) and connection.left_out:
        kinds = ", ".join(f"{count} {kind}" for kind, count in connection.left_out.items())
        trip.tell(f"unreadable lines from the machine, not shown: {kinds}")


def _with_room(trip: Trip, action: Callable[[], _T]) -> _T:
    """What `action` returns, once this computer's disk has room for it; it waits as long as the lease does.

    What a box lists must not keep it rented. One that costs nothing is left standing instead.
    """
    collect_s = policy.lease_of(trip.spec, trip.run.offer).collect_s if trip.run.offer else 0.0
    until = trip.run.phase_at + collect_s - policy.ROOM_S * 4
    while True:
        try:
            return action()
        except NoRoomError as error:
            if trip.tools.provider.free:
                raise
            trip.tell_of_room(error, f"free some space within {(until - trip.now()) / 60:.0f} min")
            if trip.now() > until:
                detail = f"no space on this computer for the outputs: {error}"
                raise OverError(End(result=Result.FAILED, cause=Cause.STORAGE, detail=detail)) from error
            trip.must_go_on()
            trip.wait(policy.ROOM_S)


def _patiently(trip: Trip, action: Callable[[], _T]) -> _T:
    """What `action` returns, tried again while the box only fails to answer."""
    until = _patient_until(trip)
    while True:
        try:
            return action()
        except (UnreachableError, GoneError) as error:
            trip.hang_up()
            if isinstance(error, GoneError) and trip.is_gone():
                raise
            if trip.now() > until or trip.wish() is Wish.DESTROY:
                raise
            trip.wait(_PAUSE_S)


def _patient_until(trip: Trip) -> float:
    """A box that a limit ended costs more for as long as it is waited for."""
    until, run = trip.now() + _PATIENCE_S, trip.run
    if run.cause not in (Cause.TIME_LIMIT, Cause.MONEY_LIMIT) or run.offer is None:
        return until
    ends_at = policy.lease_ends_at(run, policy.lease_of(trip.spec, run.offer))
    return until if ends_at is None else min(until, ends_at + policy.LIMIT_SLACK_S)
