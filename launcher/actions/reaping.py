"""Reaping: machines that no open run claims are ended, and their absence is seen twice."""

from __future__ import annotations

from collections.abc import Collection

from launcher.ports import Clock, Provider

_TRIES = 5
_LOOK_AGAIN_S = 2.0


def reap(provider: Provider, machine_ids: Collection[str], clock: Clock) -> list[str]:
    """Those that are gone for certain: absent from two lists in a row. Raises ProviderError."""
    for machine_id in machine_ids:
        provider.destroy(machine_id)
    absences = dict.fromkeys(machine_ids, 0)
    for _ in range(_TRIES):
        there = {machine.id for machine in provider.instances()}
        absences = {i: 0 if i in there else count + 1 for i, count in absences.items()}
        if all(count >= 2 for count in absences.values()):
            break
        clock.sleep(_LOOK_AGAIN_S)
    return [machine_id for machine_id, count in absences.items() if count >= 2]
