"""Data volumes of this ledger: what the provider says of them, and their end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from vastrun.launcher.core import ListedVolume, Volume
from vastrun.launcher.core.errors import ProviderError, UsageError
from vastrun.launcher.ports import Clock, HasVolumes, Ledger, Provider

UNUSED_S = 7 * 86400.0
"""A volume that no run has used for this long is pointed out."""
_MAX_POLLS = 3
_POLL_INTERVAL_S = 6.0
"""Seconds between two lists after a volume was deleted."""


@dataclass(frozen=True, kw_only=True)
class VolumeState:
    """A volume of this ledger, as its provider lists it now."""

    volume: Volume
    listed: ListedVolume | None
    """Its row in the provider's list; None: it is not in the list."""

    @property
    def in_use(self) -> bool:
        """Return whether a machine has it."""
        return self.listed is not None and self.listed.in_use

    def is_unused(self, now: float) -> bool:
        """Return whether no run has used it for long."""
        return not self.in_use and now - self.volume.used_at >= UNUSED_S


def volume_states(ledger: Ledger, provider: Provider, clock: Clock) -> list[VolumeState]:
    """Return the existing volumes of this ledger, and record in it what the provider lists.

    Volumes missing from its lists for long are recorded as gone. Raises AuthError and ProviderError when the
    list fails.
    """
    able = provider.abilities.volumes
    known = [one for one in ledger.volumes.all() if one.provider == provider.name]
    if able is None or not known:
        return []
    now = clock.now()
    found = []
    for state in _states(known, able):
        volume = state.volume if state.listed is not None else state.volume.not_listed(now)
        ledger.volumes.save(volume)
        if volume.deleted_at is None:
            found.append(VolumeState(volume=volume, listed=state.listed))
    return found


def named_volumes(states: Sequence[VolumeState], names: Sequence[str], provider: str) -> list[VolumeState]:
    """Return the volumes of those names. Raises UsageError where one does not exist or is in use."""
    by_name = {state.volume.name: state for state in states}
    for name in names:
        if name not in by_name:
            raise UsageError(
                f"--volume: this ledger has no volume {name!r}",
                hint=f"vastrun reap --provider {provider} --dry-run lists them",
            )
        if by_name[name].in_use:
            raise UsageError(
                f"volume {name} is in use; it is released half a minute after its machine is gone",
                hint="vastrun status",
            )
        if by_name[name].listed is None:
            raise UsageError(
                f"volume {name} is not listed by the provider now; a list may be late",
                hint=f"run vastrun reap --provider {provider} --volume {name} again in ten minutes",
            )
    return [by_name[name] for name in dict.fromkeys(names)]


def delete_volumes(
    states: Sequence[VolumeState],
    ledger: Ledger,
    provider: Provider,
    clock: Clock,
    warn: Callable[[str], None],
) -> list[str]:
    """Delete those volumes and all data on them; return the names of those that are gone for certain."""
    able = provider.abilities.volumes
    assert able is not None  # it listed them
    gone = []
    for state in states:
        assert state.listed is not None
        try:
            able.delete_volume(state.listed.id)
            if not _is_gone(able, state.listed.id, clock):
                raise ProviderError("the provider agreed to delete it, and still lists it")
        except ProviderError as error:
            warn(f"volume {state.volume.name}: {error}")
            continue
        ledger.volumes.save(replace(state.volume, deleted_at=clock.now()))
        gone.append(state.volume.name)
    return gone


def _is_gone(able: HasVolumes, volume_id: str, clock: Clock) -> bool:
    for number in range(_MAX_POLLS):
        if number:
            clock.sleep(_POLL_INTERVAL_S)
        if all(listed.id != volume_id for listed in able.volumes()):
            return True
    return False


def _states(known: Sequence[Volume], able: HasVolumes) -> list[VolumeState]:
    """Return each volume that exists, newest first, by the provider's list.

    One that counts as gone and is listed all the same exists: its order was done in spite of a refusal.
    """
    listed = able.volumes()
    states: dict[str, VolumeState] = {}
    for volume in known:
        if volume.label in states:
            continue
        found = [one for one in listed if one.label == volume.label]
        match = next((one for one in found if one.id == volume.volume_id), found[0] if found else None)
        if match is not None:
            states[volume.label] = VolumeState(volume=volume.listed_as(match), listed=match)
        elif volume.deleted_at is None:
            states[volume.label] = VolumeState(volume=volume, listed=None)
    return list(states.values())
