"""Orphans: machines that no open run claims; destroys them, and notes their cost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum

from vastrun.launcher.commands.takeover import held
from vastrun.launcher.core import Instance, Meter, Phase, Run, RunNetwork, bills, errors
from vastrun.launcher.core.bills import has_ended, machine_ids
from vastrun.launcher.core.labels import ledger_in
from vastrun.launcher.core.market import ScheduledEnd
from vastrun.launcher.decisions.policy import machines_of_run
from vastrun.launcher.flow.machines import is_absent
from vastrun.launcher.flow.services import Services
from vastrun.launcher.ports import Ledger, Provider

UNKNOWN_LEDGER = "unknown"
"""Value of --from-ledger for machines whose label names no ledger."""
_RECENT_S = 600.0


def reap(
    orphans: Sequence[Orphan], services: Services, *, warn: Callable[[str], object] = lambda _: None
) -> list[str]:
    """Destroy those machines.

    Return the ids of those that are gone for certain: absent twice, from the list and by their ids. One that
    cannot be destroyed now does not keep the others: `warn` gets the reason. Raises ProviderError,
    StorageError.
    """
    ended_at: dict[str, float] = {}
    costs = {one.instance.id for one in orphans if not (one.is_ghost or _was_destroyed(one, services))}
    for orphan in orphans:
        try:
            services.provider.destroy(orphan.instance.id)
            ended_at[orphan.instance.id] = services.clock.now()
        except errors.ProviderError as error:
            warn(f"{orphan.instance.id}: {error}")
    absences = dict.fromkeys(ended_at, 0)
    before: set[str] = set()
    for _ in range(5):
        present = {machine.id for machine in _listed(services.provider)[0]}
        present |= {i for i in absences if i not in present and not is_absent(services, i)}
        absences = {i: 0 if i in present else count + 1 for i, count in absences.items()}
        # One that stays for a while ended, at the latest, when it was first absent.
        ended_at |= dict.fromkeys((present | before) & ended_at.keys(), services.clock.now())
        before = present
        if all(count >= 2 for count in absences.values()):
            break
        services.clock.sleep(2.0)
    gone = [machine_id for machine_id, count in absences.items() if count >= 2]
    for orphan in orphans:
        if orphan.run is not None and (machine_id := orphan.instance.id) in costs & ended_at.keys():
            with suppress(errors.UnsignedError):  # the computer whose run it is records it
                _record_cost(orphan, orphan.run, services, ended_at[machine_id], is_gone=machine_id in gone)
    return gone


def _was_destroyed(orphan: Orphan, services: Services) -> bool:
    """Tell whether its end was noted, and only the provider's list still has it: it costs nothing now."""
    run, machine_id = orphan.run, orphan.instance.id
    if run is None or bills.released_at(run, machine_id) is None:
        return False
    return is_absent(services, machine_id)


def remove_networks(networks: Sequence[RunNetwork], services: Services) -> list[str]:
    """Remove networks of runs that have no machine any more; return the names of those that are gone."""
    gone: list[str] = []
    able = services.provider.abilities.networks
    for network in networks:
        assert able is not None  # it listed them
        with suppress(errors.AuthError, errors.ProviderError):
            able.remove_network(network.label)
            gone.append(network.name)
    return gone


def _record_cost(orphan: Orphan, run: Run, services: Services, ended_at: float, *, is_gone: bool) -> None:
    """Add the machine's cost to its run, unless another launcher drives the run: that one records it."""
    if (keys := services.provider.abilities.keys) is not None:
        keys.forget(run.id)
    with suppress(errors.HeldError), held(run, services):
        run = services.ledger.get(run.id)
        if orphan.instance.id == run.instance_id:
            run = replace(run, released_at=ended_at, meter=_ended(run.meter, ended_at, is_gone))
        else:
            asked_at = orphan.instance.asked_at or ended_at
            rental = bills.rental_of(run, orphan.instance, asked_at, ended_at)
            rental = replace(rental, released_at=ended_at, meter=_ended(rental.meter, ended_at, is_gone))
            run = replace(run, rentals=bills.with_rental(run, rental))
        run = replace(run, charged=None)  # its bill has grown
        services.ledger.save(run, who=services.who)


def _ended(meter: Meter, at: float, is_gone: bool) -> Meter:
    """The meter of a machine whose end was ordered: it stops once the machine is gone."""
    return replace(meter, given_back_at=at, absent_at=at) if is_gone else meter


class Owner(StrEnum):
    """Owner of a machine, by its label and this ledger."""

    THIS = "this ledger"
    COPY = "a copy of this ledger"
    """The label has this ledger's id, but the run is not in it: it began in a copy, or after a backup."""
    OTHER = "another ledger"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Orphan:
    """A machine that no open run of this ledger claims. Another computer's may train."""

    instance: Instance
    run: Run | None
    """Its run, when this ledger knows it."""
    owner: Owner
    is_ghost: bool = False
    """Its run confirmed its end, and the provider lists it again: it is not charged again."""

    @property
    def ledger(self) -> str | None:
        """The ledger that its label names."""
        return ledger_in(self.instance.label)


def orphans(
    ledger: Ledger, provider: Provider, now: float, *, warn: Callable[[str], None] = lambda _: None
) -> list[Orphan]:
    """Return the machines that no open run claims. Raises ProviderError when the provider cannot list them.

    `warn` gets a text when some rows of the provider's list cannot be read, and others show orphans. Machines
    of runs that ended lately are asked for by their ids, too: the list may be late, and the user may have
    given a machine another label.
    """
    runs = [run for run in ledger.runs(members=True) if run.provider == provider.name]
    machines, incomplete = _listed(provider)
    listed = {machine.id for machine in machines}
    for run in runs:
        if run.ended_at is not None and now - run.ended_at < _RECENT_S and not provider.free:
            try:
                seen = [provider.machine(one) for one in machine_ids(run) if one not in listed]
                machines += [machine for machine in seen if machine is not None]
            except errors.ProviderError as error:
                incomplete = errors.IncompleteListError(str(error))
    found = []
    for machine in machines:
        claims = [run for run in runs if machines_of_run(run, [machine]) or machine.id in machine_ids(run)]
        # A provider gives no id twice: the label may say something else.
        claims.sort(key=lambda run: machine.id not in machine_ids(run))
        if not any(run.phase is not Phase.ENDED for run in claims):
            owning = next((run for run in claims if _is_proof(run, machine, ledger)), None)
            owner = Owner.THIS if owning or not provider.shared else _unknown_owner(machine, ledger)
            is_market = provider.abilities.market is not None  # slots have one id for many runs
            is_ghost = owning is not None and is_market and has_ended(owning, machine.id)
            found.append(Orphan(instance=machine, run=owning, owner=owner, is_ghost=is_ghost))
    if incomplete is not None:
        if not found:
            raise incomplete
        warn(str(incomplete))
    return found


def _listed(provider: Provider) -> tuple[list[Instance], errors.IncompleteListError | None]:
    try:
        return list(provider.instances()), None
    except errors.IncompleteListError as error:
        return list(error.found), error


def leftover_ends(ledger: Ledger, provider: Provider, destroyed: Collection[str] = ()) -> list[ScheduledEnd]:
    """Return the scheduled ends of machines that are gone: of this ledger's ended runs, or `destroyed`.

    Raises AuthError, ProviderError when the provider cannot tell.
    """
    if (ender := provider.abilities.ends_later) is None or not (ends := ender.scheduled_ends()):
        return []
    runs = ledger.runs(members=True)
    open_ids = {one for run in runs if run.phase is not Phase.ENDED for one in machine_ids(run)}
    known = {one for run in runs for one in machine_ids(run)} | set(destroyed)
    gone = known - open_ids - {machine.id for machine in _listed(provider)[0]}
    return [end for end in ends if end.instance_id in gone]


def cancel_ends(ends: Sequence[ScheduledEnd], provider: Provider) -> list[str]:
    """Remove the scheduled ends; return the ids of the machines for which that worked."""
    done: list[str] = []
    for machine_id in dict.fromkeys(end.instance_id for end in ends):
        with suppress(errors.AuthError, errors.ProviderError):
            assert provider.abilities.ends_later is not None  # it listed them
            provider.abilities.ends_later.cancel_end(machine_id)
            done.append(machine_id)
    return done


def leftover_networks(ledger: Ledger, provider: Provider) -> list[RunNetwork]:
    """Return the networks that were made for runs of this ledger, of which none is open.

    Raises AuthError, ProviderError when the provider cannot tell.
    """
    networks = provider.abilities.networks
    if networks is None:
        return []
    open_labels = {run.label for run in ledger.runs(open_only=True)}
    made = networks.run_networks()
    return [one for one in made if ledger_in(one.label) == ledger.id and one.label not in open_labels]


def select_by_ledger(found: Sequence[Orphan], named: str | None) -> list[Orphan]:
    """Return the machines to destroy: this ledger's, or those of the ledger that the user names.

    Raises UsageError when the one that is named has none.
    """
    if named is None:
        return [orphan for orphan in found if orphan.owner is Owner.THIS]
    ledger_id = None if named == UNKNOWN_LEDGER else named
    chosen = [orphan for orphan in found if orphan.owner is not Owner.THIS and orphan.ledger == ledger_id]
    if not chosen:
        raise errors.UsageError(
            f"--from-ledger: expected another ledger with machines there, got {named!r}",
            hint="vastrun reap --dry-run lists the machines by ledger",
        )
    return chosen


def by_owner(orphans: Sequence[Orphan]) -> Iterator[tuple[str, Sequence[Orphan]]]:
    """Yield the machines that are not, or perhaps not, this ledger's, together by owner, in words."""
    groups: dict[str, list[Orphan]] = {}
    for orphan in orphans:
        if orphan.owner is not Owner.THIS:
            groups.setdefault(owner_text(orphan), []).append(orphan)
    yield from groups.items()


def owner_text(orphan: Orphan) -> str:
    """Say whose the machine is."""
    match orphan.owner:
        case Owner.THIS:
            return "this computer's"
        case Owner.COPY:
            return f"of a copy of this ledger ({orphan.ledger})"
        case Owner.OTHER:
            return f"another computer's (ledger {orphan.ledger})"
        case Owner.UNKNOWN:
            return "owner unknown, may be another computer's"


def _is_proof(run: Run, machine: Instance, ledger: Ledger) -> bool:
    """Return whether the machine is this ledger's by its label or a signed row: a writer of the database may
    name any machine.
    """
    if run.ledger == ledger.id and machine.label == run.label:
        return True
    with suppress(errors.UnsignedError):
        return bool(ledger.for_drivers().get(run.id))
    return False


def _unknown_owner(machine: Instance, ledger: Ledger) -> Owner:
    """Return the owner of a machine that this ledger does not know."""
    named = ledger_in(machine.label)
    if named is None:
        return Owner.UNKNOWN
    return Owner.COPY if named == ledger.id else Owner.OTHER
