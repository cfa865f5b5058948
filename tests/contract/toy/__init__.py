"""A provider as somebody might add it: it keeps its own list of machines, each a folder of this computer.

All that the launcher knows of it is this folder and one line of a registry.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vastrun.launcher.core import Instance, Offer, RentalOrder
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.ports import Abilities, Clock, Remote
from vastrun.launcher.providers import ProviderContext
from vastrun.launcher.providers.local import LocalProvider


class ToyProvider:
    """Sells one kind of machine for a cent an hour. Its list is a file; a box is one of `local`."""

    name = "toy"
    free = False
    max_nodes = 1
    shared = False
    list_lag_s = 0.0

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._local = LocalProvider(folder / "boxes", sys.executable, 0.01, clock=clock)
        self._list = folder / "machines.json"

    @classmethod
    def of(cls, context: ProviderContext) -> ToyProvider:
        return cls(context.state / "toy", context.clock)

    @property
    def abilities(self) -> Abilities:
        return Abilities()

    def search(self, spec: JobSpec) -> Sequence[Offer]:
        return [replace(offer, id="toy", description="a toy machine") for offer in self._local.search(spec)]

    def rent(self, order: RentalOrder) -> Instance:
        instance = self._local.rent(order)
        self._write([*self._ids(), instance.id])
        return instance

    def instances(self) -> Sequence[Instance]:
        ids = self._ids()
        return [instance for instance in self._local.instances() if instance.id in ids]

    def machine(self, instance_id: str) -> Instance | None:
        return self._local.machine(instance_id) if instance_id in self._ids() else None

    def connect(self, instance: Instance) -> Remote:
        return self._local.connect(instance)

    def destroy(self, instance_id: str) -> None:
        self._local.destroy(instance_id)
        self._write([each for each in self._ids() if each != instance_id])

    def _ids(self) -> list[str]:
        ids: list[str] = json.loads(self._list.read_text()) if self._list.exists() else []
        return ids

    def _write(self, ids: Sequence[str]) -> None:
        self._list.parent.mkdir(parents=True, exist_ok=True)
        self._list.write_text(json.dumps(ids))
