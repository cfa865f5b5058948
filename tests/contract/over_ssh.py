"""The provider `local`, with boxes that are reached over SSH: a real server, and our own shell on it."""

from collections.abc import Sequence
from pathlib import Path

from tests.emulators.sshd import Sshd
from vastrun.launcher.core import Instance, Offer, RentalOrder
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.ports import Abilities, Provider, Remote
from vastrun.launcher.ssh.connection import Login
from vastrun.launcher.ssh.keys import KeyRing, KnownHosts
from vastrun.launcher.ssh.remote import SshRemote


class OverSsh:
    """Everything but `connect` is the provider's own."""

    name = "local"
    free = True
    max_nodes = 1
    shared = False
    list_lag_s = 0.0

    def __init__(self, local: Provider, boxes: Path, sshd: Sshd, keys: KeyRing) -> None:
        self._local, self._boxes, self._sshd, self._keys = local, boxes, sshd, keys

    @property
    def abilities(self) -> Abilities:
        return Abilities()

    def search(self, spec: JobSpec) -> Sequence[Offer]:
        return self._local.search(spec)

    def rent(self, order: RentalOrder) -> Instance:
        self._sshd.authorize(self._keys.pair(order.label).public)
        return self._local.rent(order)

    def instances(self) -> Sequence[Instance]:
        return self._local.instances()

    def machine(self, instance_id: str) -> Instance | None:
        return self._local.machine(instance_id)

    def connect(self, instance: Instance) -> Remote:
        self._local.connect(instance)  # starts its lease again, and says when it is gone
        login = Login(
            addresses=[self._sshd.address],
            key=self._keys.pair(instance.label),
            hosts=KnownHosts(self._keys.known_hosts(instance.label, instance.id)),
            user=self._sshd.user,
        )
        return SshRemote(
            login,
            root=str(self._boxes / instance.id),
            env={},
            is_gone=lambda: instance.id not in [found.id for found in self.instances()],
        )

    def destroy(self, instance_id: str) -> None:
        self._local.destroy(instance_id)
