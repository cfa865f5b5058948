"""Volumes: disks of one machine that outlive instances, with one instance at a time."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.emulators.account import Account
from tests.emulators.clock import Clock
from tests.emulators.faults import Faults
from tests.emulators.instance import Instance

RELEASE_S = 30.0
OFFER_BASE = 9_000_000
"""The id of a machine's volume offer is so much more than its own."""
_HOURS_A_MONTH = 720.0
_BUSY_S = 300.0


@dataclass
class Volume:
    """A volume, its data, and the instance that has it."""

    id: int
    label: str | None
    machine_id: int
    gb: float
    usd_per_hour: float
    created_at: float
    paid_until: float
    folder: Path
    usd: float = 0.0
    instance_id: int | None = None
    released_at: float | None = None
    """When its instance was gone; None: it is there, or it never had one."""

    def is_free(self, now: float) -> bool:
        """Whether an instance can have it now."""
        return self.instance_id is None or (self.released_at is not None and now >= self.released_at)


class Volumes:
    """Those of the account. Call `settle` first."""

    def __init__(self, clock: Clock, account: Account, faults: Faults, folder: Path) -> None:
        self._clock, self._account, self._faults, self._folder = clock, account, faults, folder
        self._ids = itertools.count(77_001)
        self._volumes: dict[int, Volume] = {}
        self.created = 0
        self.unlisted_until = 0.0
        self.deleted_usd = 0.0
        """What those cost that are gone."""

    def __iter__(self) -> Iterator[Volume]:
        return iter(list(self._volumes.values()))

    def __len__(self) -> int:
        return len(self._volumes)

    @property
    def total_usd(self) -> float:
        """What all of them cost so far."""
        return self.deleted_usd + sum(volume.usd for volume in self)

    def get(self, volume_id: int) -> Volume | None:
        """The volume of that id."""
        return self._volumes.get(volume_id)

    def attach(self, instance: Instance) -> None:
        """The new instance has the volume that was asked for with it, which is created if that was asked."""
        info = instance.rental.volume_info
        if info is None:
            return
        if info["create_new"]:
            if info["volume_id"] != OFFER_BASE + instance.machine.id:
                return
            volume = self._create(instance, info.get("name"), float(info.get("size") or 15))
        else:
            found = self.get(info["volume_id"])
            if found is None or not found.is_free(self._clock.now()):
                return
            volume = found
        volume.instance_id, volume.released_at = instance.id, None
        instance.box.mount(volume.folder, str(info["mount_path"]))

    def settle(self, instance_ids: Collection[int]) -> None:
        """Those whose instance is gone are released soon, and all are paid for until now."""
        now = self._clock.now()
        for volume in self:
            seconds = max(0.0, now - volume.paid_until)
            volume.usd += seconds / 3600 * volume.usd_per_hour
            self._account.credit -= seconds / 3600 * volume.usd_per_hour
            volume.paid_until = max(now, volume.paid_until)
            if volume.instance_id is not None and volume.instance_id not in instance_ids:
                if volume.released_at is None:
                    busy = self._faults.take("volume_busy")
                    volume.released_at = now + RELEASE_S
                    if busy:
                        volume.released_at = now + (_BUSY_S if busy.seconds is None else busy.seconds)
                elif volume.is_free(now):
                    volume.instance_id = volume.released_at = None

    def remove(self, volume: Volume) -> None:
        """The volume and its data are gone."""
        self._volumes.pop(volume.id, None)
        self.deleted_usd += volume.usd
        shutil.rmtree(volume.folder, ignore_errors=True)

    def _create(self, instance: Instance, label: str | None, gb: float) -> Volume:
        volume_id, now = next(self._ids), self._clock.now()
        folder = self._folder / "volumes" / str(volume_id)
        folder.mkdir(parents=True)
        self._volumes[volume_id] = made = Volume(
            id=volume_id,
            label=label,
            machine_id=instance.machine.id,
            gb=gb,
            usd_per_hour=instance.machine.volume_usd * gb / _HOURS_A_MONTH,
            created_at=now,
            paid_until=now,
            folder=folder,
        )
        self.created += 1
        return made
