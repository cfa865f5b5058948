"""The provider `docker`: an instance is a container, here or on the computer that DOCKER_HOST names."""

from __future__ import annotations

import re
import secrets
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from vastrun.launcher.core import LABEL_PREFIX, Instance, Offer, RentalOrder
from vastrun.launcher.core.errors import GoneError, ProviderError, UncertainError, UnreachableError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.image.lock import Lock, shipped_lock
from vastrun.launcher.ports import Abilities, Clock, Remote
from vastrun.launcher.providers import ProviderContext
from vastrun.launcher.providers.docker.answers import ENDED, end_error
from vastrun.launcher.providers.docker.boxes import (
    ANYWHERE,
    HERE,
    LABEL,
    NETWORK,
    OWNER,
    ContainerBox,
    config_of,
    limits_of,
)
from vastrun.launcher.providers.docker.engine import Engine
from vastrun.launcher.providers.docker.offers import hardware_of, image_for, offers_for, variants_here
from vastrun.launcher.providers.docker.rows import Container, owner_of
from vastrun.launcher.providers.hardware import of_all_nodes
from vastrun.launcher.providers.identity import LoggedKeys
from vastrun.launcher.providers.onstart import BOX, readable_text
from vastrun.launcher.ssh.connection import Login
from vastrun.launcher.ssh.hosts import KnownHosts
from vastrun.launcher.ssh.keys import KeyRing
from vastrun.launcher.ssh.noise import NoiseFilter
from vastrun.launcher.ssh.remote import SshRemote

_LEAST_SHM_GB = 2.0
_RENDEZVOUS_PORT = 29400
"""On the network of a run everything is free."""
_UNUSED_S = 3600.0
"""A network that has no container for so long was left by a launcher that was killed."""
_NAME = re.compile(rf"{LABEL_PREFIX}[\w.-]+\.[0-9a-f]{{4}}", re.ASCII)


class DockerProvider:
    """Containers of one daemon, for one ledger. `Provider` says what each verb promises."""

    name = "docker"
    free = True
    max_nodes = 64
    shared = False
    list_lag_s = 0.0
    login = "root"
    """Who logs in to a container."""

    def __init__(
        self,
        state: Path,
        environ: Mapping[str, str],
        lock: Callable[[], Lock] = shipped_lock,
        *,
        clock: Clock,
    ) -> None:
        """`state`: the folder of the ledger whose containers these are. `lock`: the images of ours."""
        self._state = state
        self._lock = lock
        self._engine = Engine(environ)
        self._visible_gpus = environ.get("CUDA_VISIBLE_DEVICES")
        self._keys = KeyRing(state / "keys")
        self._clock = clock
        self._logged = LoggedKeys(self._engine.log, clock)
        self._noise: defaultdict[str, NoiseFilter] = defaultdict(NoiseFilter)
        """Of each run, however often it was connected to."""

    @classmethod
    def of(cls, context: ProviderContext) -> DockerProvider:
        """Make it for the daemon that DOCKER_HOST names, or this computer's."""
        return cls(context.state, context.environ, context.image_lock, clock=context.clock)

    @property
    def abilities(self) -> Abilities:
        return Abilities(keys=self, description=self, start_script=self, replaces_nodes=True)

    def start_script(self, order: RentalOrder) -> str:
        """Return what the container runs at each start, unpacked. Holds no secret."""
        return readable_text(order.onstart)

    def search(self, spec: JobSpec) -> Sequence[Offer]:
        """Return the daemon's computer; with GPUs and several nodes, a part of it for each.

        Raises NoOfferError, which says all that it lacks.
        """
        docker_host, remote = self._engine.docker_host(), bool(self._engine.host)
        needed = of_all_nodes(spec)
        hardware = hardware_of(docker_host, needed, remote=remote, visible=self._visible_gpus)
        offers = offers_for(spec, docker_host, hardware)
        image, whole = image_for(spec, hardware, self._engine, self._lock())
        return [replace(offer, image=image, image_whole=whole) for offer in offers]

    def rent(self, order: RentalOrder) -> Instance:
        """Start a container. It carries its labels from the moment it exists."""
        box = ContainerBox(
            name=f"{order.label}.{secrets.token_hex(2)}",
            order=order,
            public_key=self._keys.pair(_run_of(order.label)).public,
            owner=owner_of(self._state),
            shm_gb=max(_LEAST_SHM_GB, (order.memory_gb or self._engine.docker_host().memory_gb) / 2),
            published_at=ANYWHERE if self._engine.host else HERE,
        )
        if box.network:
            self._make_network(box)
        self._engine.create(box.name, config_of(box), limits_of(box))
        self._engine.start(box.name)
        return self._looked_at(box.name)

    def instances(self) -> Sequence[Instance]:
        """List every container that a launcher of this ledger made, whatever became of it."""
        owned = self._engine.containers(f"{OWNER}={owner_of(self._state)}")
        return [_instance(container) for container in owned]

    def machine(self, instance_id: str) -> Instance | None:
        """Return the container with that name, or None."""
        return next((found for found in self.instances() if found.id == instance_id), None)

    def connect(self, instance: Instance) -> Remote:
        """Return a shell in the container. One that was made and never started is started."""
        container = self._found(instance.id)
        # A launcher that was killed between `create` and `start` left it so; its lease is not armed yet.
        if container is not None and container.state == "created":
            self._engine.start(container.name)
            container = self._found(instance.id)
        if container is None:
            raise GoneError(f"there is no container {instance.id}")
        if container.state in ENDED:
            raise end_error(container, self._last_words(container))
        if container.state != "running":
            raise UnreachableError(f"container {container.name} is {container.state}")
        if container.ssh_port is None:
            raise UnreachableError(f"container {container.name} is on no network")
        return self._shell(container, container.ssh_port)

    def destroy(self, instance_id: str) -> None:
        """Remove the container and its volumes."""
        container = self._found(instance_id)
        if container is not None:
            self._engine.remove(container.name)
            if (network := container.labels.get(NETWORK)) and self._is_own_network(network):
                self._engine.remove_network(network)

    def forget(self, run_id: str) -> None:
        """Remove the run's key from this computer."""
        self._keys.forget(run_id)

    def describe(self) -> str:
        """Say which Docker it is, what its containers have, and what they can be made of."""
        docker_host = self._engine.docker_host()
        gpus = "GPUs" if docker_host.gives_gpus else "no GPUs"
        variants = ", ".join(variants_here(self._engine)) or "none yet (vastrun image build)"
        return (
            f"Docker {docker_host.version} on {docker_host.name}: {docker_host.cores} cores, "
            f"{docker_host.memory_gb:.0f} GB memory, {gpus}; our images: {variants}"
        )

    def _make_network(self, box: ContainerBox) -> None:
        """One that only the containers of the run are on. What a launcher that was killed left is removed."""
        for network in self._engine.networks(f"{OWNER}={box.owner}"):
            if network.name != box.network and self._clock.now() - network.created_at > _UNUSED_S:
                self._engine.remove_network(network.name)
        self._engine.make_network(box.network, {OWNER: box.owner})

    def _is_own_network(self, name: str) -> bool:
        """Tell whether it was made for a run of this ledger: an image may have the same labels."""
        made = self._engine.networks(f"{OWNER}={owner_of(self._state)}")
        return any(network.name == name for network in made)

    def _looked_at(self, name: str) -> Instance:
        """The container that was just made, as it is listed."""
        try:
            return next(found for found in self.instances() if found.id == name)
        except (StopIteration, UnreachableError) as error:
            raise UncertainError(f"container {name} was created, but cannot be found") from error

    def _found(self, name: str) -> Container | None:
        """One of ours. Docker would take other words for a container, too."""
        container = self._engine.container(name) if _NAME.fullmatch(name) else None
        ours = container is not None and container.labels.get(OWNER) == owner_of(self._state)
        return container if ours else None

    def _last_words(self, container: Container) -> str:
        """Its log; nothing where that cannot be read: why it ended counts for more."""
        with suppress(ProviderError):
            return self._engine.log(container.name)
        return ""

    def _shell(self, container: Container, port: int) -> Remote:
        run_id = _run_of(container.labels[LABEL])
        known = self._keys.known_hosts(run_id, container.name)
        login = Login(
            addresses=[(self._engine.host or HERE, port)],
            key=self._keys.pair(run_id),
            hosts=KnownHosts(known, read_fingerprints=lambda: self._logged.of(container.name)),
            user=self.login,
        )
        return SshRemote(
            login,
            root=BOX,
            env={},
            is_gone=lambda: self._found(container.name) is None,
            noise=self._noise[run_id],
        )


def _instance(container: Container) -> Instance:
    address = container.addresses.get(container.labels.get(NETWORK, ""))
    return Instance(
        id=container.name,
        label=container.labels[LABEL],
        state=container.state,
        usd_per_hour=0.0,
        rented_at=container.created_at,
        image=container.image,
        rendezvous=f"{address}:{_RENDEZVOUS_PORT}" if address else "",
    )


def _run_of(label: str) -> str:
    return label.removeprefix(LABEL_PREFIX)
