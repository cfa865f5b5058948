"""Fake data volumes: disks of a fake market's machines, which outlive these."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vastrun.launcher.core import Instance, ListedVolume, RentalOrder, VolumeOffer
from vastrun.launcher.core.errors import ProviderError, VastrunError
from vastrun.launcher.ports import Clock

RELEASE_S = 30.0
"""How long a volume stays in use after its machine is gone."""


@dataclass
class FakeVolume:
    """A volume, and the machine that has it."""

    listed: ListedVolume
    machine: str
    released_at: float | None = None


class FakeVolumes:
    """The volumes of a market. Its provider says what was rented and what is gone."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.there: dict[str, FakeVolume] = {}
        self.created = 0
        self.deleted: list[str] = []
        self.usd_per_gb_month = 0.1
        self.room_gb = 500
        """On each machine."""
        self.error: VastrunError | None = None
        """What is answered to who lists them."""
        self.refuses: VastrunError | None = None
        """What an order with a volume is answered."""
        self.keeps_deleted = False
        """It agrees to delete them, and goes on listing them."""
        self.unlisted = False
        """The list is late: it has none of them."""
        self._ids = itertools.count(701)

    def volumes(self) -> Sequence[ListedVolume]:
        if self.error is not None:
            raise self.error
        return [] if self.unlisted else [self._row(volume) for volume in self.there.values()]

    def volume_offer(self, host: str, gb: int) -> VolumeOffer | None:
        if gb > self.room_gb:
            return None
        return VolumeOffer(id=f"90{host[-1]}", host=host, usd_per_gb_month=self.usd_per_gb_month)

    def delete_volume(self, volume_id: str) -> None:
        volume = self.there.get(volume_id)
        if volume is not None and self._row(volume).in_use:
            raise ProviderError("the volume is in use")
        if not self.keeps_deleted:
            self.there.pop(volume_id, None)
        self.deleted.append(volume_id)

    def rented(self, order: RentalOrder, machine: Instance) -> None:
        """Create or attach what was ordered with the machine. Raises what it refuses."""
        wanted = order.volume
        if wanted is None:
            return
        if self.refuses is not None:
            raise self.refuses
        if wanted.volume_id:
            volume = self.there[wanted.volume_id]
            assert not self._row(volume).in_use, "a volume has one machine at a time"
            assert volume.listed.host == order.offer.host, "a volume stays on its machine"
            volume.machine, volume.released_at = machine.id, None
            return
        self.created += 1
        listed = ListedVolume(
            id=str(next(self._ids)), label=wanted.label, host=order.offer.host, gb=wanted.gb, in_use=True
        )
        self.there[listed.id] = FakeVolume(listed, machine.id)

    def gone(self, machine_id: str) -> None:
        """The machine is gone: its volume is released a moment later."""
        for volume in self.there.values():
            if volume.machine == machine_id and volume.released_at is None:
                volume.released_at = self.clock.now() + RELEASE_S

    def _row(self, volume: FakeVolume) -> ListedVolume:
        free = volume.released_at is not None and self.clock.now() >= volume.released_at
        return replace(volume.listed, in_use=not free)
