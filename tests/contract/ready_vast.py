"""The provider `vast` on an emulated market, whose machines are up when they are rented."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

from launcher.errors import UnreachableError
from launcher.job import JobSpec
from launcher.model import Instance, Offer, Order
from launcher.ports import Provider, Remote

_UP_S = 30.0


class ReadyVast:
    """Everything but `rent` is the provider's own; that waits for the lease, as a launcher does."""

    name = "vast"
    free = False
    most_nodes = 1

    def __init__(self, vast: Provider) -> None:
        self._vast = vast

    def search(self, spec: JobSpec) -> Sequence[Offer]:
        return self._vast.search(spec)

    def rent(self, order: Order) -> Instance:
        rented = self._vast.rent(order)
        deadline = time.monotonic() + _UP_S
        while not self._is_armed(rented):
            assert time.monotonic() < deadline, "the machine is not up"
            time.sleep(0.05)
        return next(found for found in self.instances() if found.id == rented.id)

    def instances(self) -> Sequence[Instance]:
        return self._vast.instances()

    def connect(self, instance: Instance) -> Remote:
        return self._vast.connect(instance)

    def destroy(self, instance_id: str) -> None:
        self._vast.destroy(instance_id)

    def _is_armed(self, instance: Instance) -> bool:
        with suppress(UnreachableError):
            remote = self.connect(instance)
            try:
                return b"state=armed" in remote.read("lease.state").splitlines()
            finally:
                remote.close()
        return False
