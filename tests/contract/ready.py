"""A provider whose machines are up when they are rented."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from tests.waiting import LONGEST_S
from vastrun.launcher.core import Instance, Offer, RentalOrder
from vastrun.launcher.core.errors import UnreachableError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.ports import Abilities, Provider, Remote


class Ready:
    """Everything but `rent` is the provider's own; that waits for the lease, as a launcher does."""

    def __init__(self, provider: Provider, image: str | None = None) -> None:
        """`image`: of a job that names none."""
        self._provider, self._image = provider, image
        self.name, self.free, self.max_nodes = provider.name, provider.free, provider.max_nodes
        self.shared, self.list_lag_s = provider.shared, provider.list_lag_s

    @property
    def abilities(self) -> Abilities:
        return Abilities()

    def search(self, spec: JobSpec) -> Sequence[Offer]:
        return self._provider.search(replace(spec, image=spec.image or self._image))

    def rent(self, order: RentalOrder) -> Instance:
        rented = self._provider.rent(order)
        deadline = time.monotonic() + LONGEST_S
        while not self._is_armed(rented):
            assert time.monotonic() < deadline, "the machine is not up"
            time.sleep(0.05)
        return next(found for found in self.instances() if found.id == rented.id)

    def instances(self) -> Sequence[Instance]:
        return self._provider.instances()

    def machine(self, instance_id: str) -> Instance | None:
        return self._provider.machine(instance_id)

    def connect(self, instance: Instance) -> Remote:
        return self._provider.connect(instance)

    def destroy(self, instance_id: str) -> None:
        self._provider.destroy(instance_id)

    def _is_armed(self, instance: Instance) -> bool:
        with suppress(UnreachableError):
            remote = self.connect(instance)
            try:
                return b"state=armed" in remote.read("lease.state").splitlines()
            finally:
                remote.close()
        return False
