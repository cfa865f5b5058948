"""Reaping: machines that no open run claims are ended, their absence is seen twice, their cost is noted."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from vastrun.launcher.commands.orphans import Orphan
from vastrun.launcher.core import Driver, Instance, Meter, Run, RunNetwork, bills
from vastrun.launcher.core.errors import AuthError, HeldError, IncompleteListError, ProviderError
from vastrun.launcher.decisions import policy
from vastrun.launcher.flow.services import Services
from vastrun.launcher.ports import Provider

_MAX_POLLS = 5
_POLL_INTERVAL_S = 2.0


def reap(orphans: Sequence[Orphan], services: Services) -> list[str]:
    """Destroy those machines.

    Return the ids of those that are gone for certain: absent twice, from the list and by their ids.

    Raises ProviderError, StorageError.
    """
    ended_at: dict[str, float] = {}
    costs = {
        one.instance.id for one in orphans if not (one.is_ghost or _was_destroyed(one, services.provider))
    }
    for orphan in orphans:
        services.provider.destroy(orphan.instance.id)
        ended_at[orphan.instance.id] = services.clock.now()
    absences = dict.fromkeys(ended_at, 0)
    before: set[str] = set()
    for _ in range(_MAX_POLLS):
        present = {machine.id for machine in _list_machines(services.provider)}
        present |= {i for i in absences if i not in present and services.provider.machine(i) is not None}
        absences = {i: 0 if i in present else count + 1 for i, count in absences.items()}
        # One that stays for a while ended, at the latest, when it was first absent.
        ended_at |= dict.fromkeys((present | before) & ended_at.keys(), services.clock.now())
        before = present
        if all(count >= 2 for count in absences.values()):
            break
        services.clock.sleep(_POLL_INTERVAL_S)
    gone = [machine_id for machine_id, count in absences.items() if count >= 2]
    for orphan in orphans:
        if orphan.run is not None and (machine_id := orphan.instance.id) in costs:
            _record_cost(orphan, orphan.run, services, ended_at[machine_id], is_gone=machine_id in gone)
    return gone


def _was_destroyed(orphan: Orphan, provider: Provider) -> bool:
    """Tell whether its end was noted, and only the provider's list still has it: it costs nothing now."""
    run, machine_id = orphan.run, orphan.instance.id
    if run is None or bills.released_at(run, machine_id) is None:
        return False
    return provider.machine(machine_id) is None


def _list_machines(provider: Provider) -> Sequence[Instance]:
    """List the machines; those of other rows are asked for by their ids."""
    try:
        return provider.instances()
    except IncompleteListError as error:
        return error.found


def remove_networks(networks: Sequence[RunNetwork], services: Services) -> list[str]:
    """Remove networks of runs that have no machine any more; return the names of those that are gone."""
    gone: list[str] = []
    able = services.provider.abilities.networks
    for network in networks:
        assert able is not None  # it listed them
        with suppress(AuthError, ProviderError):
            able.remove_network(network.label)
            gone.append(network.name)
    return gone


def _record_cost(orphan: Orphan, run: Run, services: Services, ended_at: float, *, is_gone: bool) -> None:
    """Add the machine's cost to its run, unless another launcher drives the run: that one records it."""
    now = services.clock.now()
    if (keys := services.provider.abilities.keys) is not None:
        keys.forget(run.id)
    try:
        services.ledger.hold(run.id, Driver(who=services.who, until=now + policy.DRIVER_TIMEOUT_S))
    except HeldError:
        return
    try:
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
    finally:
        services.ledger.release(run.id, services.who)


def _ended(meter: Meter, at: float, is_gone: bool) -> Meter:
    """The meter of a machine whose end was ordered: it stops once the machine is gone."""
    return replace(meter, given_back_at=at, absent_at=at) if is_gone else meter
