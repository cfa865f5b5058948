"""Reaping: machines that no open run claims are ended, their absence is seen twice, their cost is noted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from launcher.commands.orphans import Orphan
from launcher.core import Driver, Run, bills
from launcher.core.errors import HeldError
from launcher.decisions import policy
from launcher.flow.context import Tools
from launcher.ports import KeepsKeys

_TRIES = 5
_LOOK_AGAIN_S = 2.0


def reap(orphans: Sequence[Orphan], tools: Tools) -> list[str]:
    """The ids of those that are gone for certain: absent twice, from the list and by their ids.

    Raises ProviderError, StorageError.
    """
    ended_at: dict[str, float] = {}
    for orphan in orphans:
        tools.provider.destroy(orphan.instance.id)
        ended_at[orphan.instance.id] = tools.clock.now()
    absences = dict.fromkeys(ended_at, 0)
    before: set[str] = set()
    for _ in range(_TRIES):
        there = {machine.id for machine in tools.provider.instances()}
        there |= {i for i in absences if i not in there and tools.provider.machine(i) is not None}
        absences = {i: 0 if i in there else count + 1 for i, count in absences.items()}
        # One that stays for a while ended, at the latest, when it was first absent.
        ended_at |= dict.fromkeys((there | before) & ended_at.keys(), tools.clock.now())
        before = there
        if all(count >= 2 for count in absences.values()):
            break
        tools.clock.sleep(_LOOK_AGAIN_S)
    for orphan in orphans:
        if orphan.run is not None:
            _note(orphan, orphan.run, tools, ended_at[orphan.instance.id])
    return [machine_id for machine_id, count in absences.items() if count >= 2]


def _note(orphan: Orphan, run: Run, tools: Tools, ended_at: float) -> None:
    """What the machine cost is part of its run's cost. Whoever drives the run notes it himself."""
    now = tools.clock.now()
    if isinstance(tools.provider, KeepsKeys):
        tools.provider.forget(run.id)
    try:
        tools.ledger.hold(run.id, Driver(who=tools.who, until=now + policy.HOLD_S))
    except HeldError:
        return
    try:
        run = tools.ledger.get(run.id)
        if orphan.instance.id == run.instance_id:
            run = replace(run, released_at=ended_at)
        else:
            asked_at = orphan.instance.asked_at or ended_at
            rental = bills.rental_of(run, orphan.instance, asked_at, ended_at)
            rental = replace(rental, released_at=ended_at)
            run = replace(run, rentals=bills.with_rental(run, rental))
        tools.ledger.save(run, who=tools.who)
    finally:
        tools.ledger.release(run.id, tools.who)
