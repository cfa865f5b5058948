"""Provider `docker`: an instance is a container on this computer or on DOCKER_HOST."""

from __future__ import annotations

import math
import re
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from vastrun.launcher.core import LABEL_PREFIX, Identity, Instance, Offer, RentalOrder, errors
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.labels import run_id_in
from vastrun.launcher.image.daemon import local_images, newest_local_image
from vastrun.launcher.image.lock import Lock, shipped_lock
from vastrun.launcher.ports import Abilities, Clock, Remote
from vastrun.launcher.providers import ProviderContext
from vastrun.launcher.providers.docker import containers
from vastrun.launcher.providers.docker.engine import ENDED, Engine, end_error
from vastrun.launcher.providers.hardware import Hardware, LocalGpu, node_offers, read_gpus
from vastrun.launcher.providers.onstart import BOX, readable_text
from vastrun.launcher.ssh.connection import Login
from vastrun.launcher.ssh.keys import HostKeyLog, KeyRing, KnownHosts
from vastrun.launcher.ssh.remote import SshRemote

_UNUSED_NETWORK_S = 3600.0
"""Seconds after which a network without containers counts as left behind by a killed launcher."""
_NAME = re.compile(rf"{LABEL_PREFIX}[\w.-]+\.[0-9a-f]{{4}}", re.ASCII)
_CPU = "cpu"


class DockerProvider:
    """The Provider port for the containers of one ledger on one daemon."""

    name = "docker"
    free = True
    max_nodes = 64
    shared = False
    list_lag_s = 0.0
    login = "root"
    """User who logs in to a container."""

    def __init__(
        self,
        state: Path,
        environ: Mapping[str, str],
        lock: Callable[[], Lock] = shipped_lock,
        *,
        clock: Clock,
    ) -> None:
        """`state`: folder of the ledger that owns the containers. `lock`: returns vastrun's images."""
        self._state = state
        self._lock = lock
        self._engine = Engine(environ)
        self._visible_gpus = environ.get("CUDA_VISIBLE_DEVICES")
        self._keys = KeyRing(state / "keys")
        self._clock = clock
        self._host_keys = HostKeyLog(self._engine.log, clock)

    @classmethod
    def of(cls, context: ProviderContext) -> DockerProvider:
        """Build the provider for the daemon on DOCKER_HOST or this computer."""
        return cls(context.state, context.environ, context.image_lock, clock=context.clock)

    @property
    def abilities(self) -> Abilities:
        return Abilities(
            identity=self,
            keys=self,
            describe=self.describe,
            start_script=lambda order: readable_text(order.onstart),
        )

    def identity(self) -> Identity:
        """Return the daemon's computer: with another DOCKER_HOST, all containers would seem to be gone."""
        return Identity(account=self._engine.docker_host().name, clock_ahead_s=None)

    def search(self, spec: JobSpec) -> Sequence[Offer]:
        """Return the daemon's computer as an offer; with GPUs and several nodes, an offer for each node.

        Raises NoOfferError with all unmet requirements.
        """
        docker_host, remote = self._engine.docker_host(), bool(self._engine.host)
        needed = spec.resources.times(spec.nodes)
        # A remote daemon reports neither its GPUs nor its free disk: both are assumed to meet the
        # requirements, except for names and memory of GPUs. The box checks them before it trains.
        if remote:
            unknown = [LocalGpu(uuid=str(index), name="", memory_gb=0.0) for index in range(needed.gpus)]
            gpus, cuda = tuple(unknown) if docker_host.has_gpus else (), 0.0
            disk_gb = needed.disk_gb
        else:
            gpus, cuda = read_gpus(self._visible_gpus)
            # Unknown is enough: the box measures its disk before it trains, and costs nothing until then.
            disk_gb = needed.disk_gb
            with suppress(OSError):  # it is not visible, as with Docker Desktop's VM
                disk_gb = shutil.disk_usage(docker_host.folder).free / 1e9
        hardware = Hardware(
            cores=docker_host.cores, memory_gb=docker_host.memory_gb, disk_gb=disk_gb, gpus=gpus, cuda=cuda
        )
        name = docker_host.name
        offers = node_offers(spec, hardware, name=name, host=name, where=f"Docker on {name}")
        image, whole = choose_image(spec, hardware, self._engine, self._lock())
        return [replace(offer, image=image, image_whole=whole) for offer in offers]

    def rent(self, order: RentalOrder) -> Instance:
        """Create and start a container. Its labels are set at its creation, so no crash can orphan it."""
        name, owner = f"{order.label}.{secrets.token_hex(2)}", containers.read_owner_id(self._state)
        public_key = self._keys.pair(run_id_in(order.label)).public
        limits = containers.container_limits(
            order,
            shm_gb=max(2.0, (order.memory_gb or self._engine.docker_host().memory_gb) / 2),
            published_at=containers.ALL_INTERFACES if self._engine.host else containers.LOCALHOST,
        )
        if own_network := containers.network_of(order):
            # Those of killed launchers are removed.
            for network, created_at in self._engine.networks(f"{containers.OWNER}={owner}").items():
                if network != own_network and self._clock.now() - created_at > _UNUSED_NETWORK_S:
                    self._engine.remove_network(network)
            self._engine.create_network(own_network, {containers.OWNER: owner})
        self._engine.create(name, containers.container_config(order, name, owner, public_key), limits)
        self._engine.start(name)
        try:
            return next(found for found in self.instances() if found.id == name)
        except (StopIteration, errors.UnreachableError) as error:
            raise errors.UncertainError(f"container {name} was created, but cannot be found") from error

    def instances(self) -> Sequence[Instance]:
        """List all containers of this ledger's launchers, in any state."""
        owned = self._engine.containers(f"{containers.OWNER}={containers.read_owner_id(self._state)}")
        return [_instance(container) for container in owned]

    def machine(self, instance_id: str) -> Instance | None:
        return next((found for found in self.instances() if found.id == instance_id), None)

    def connect(self, instance: Instance) -> Remote:
        """Return a shell in the container. A container that was never started is started."""
        container = self._find_owned(instance.id)
        # A launcher that was killed between `create` and `start` leaves this state; no lease is armed yet.
        if container is not None and container.state == "created":
            self._engine.start(container.name)
            container = self._find_owned(instance.id)
        if container is None:
            raise errors.GoneError(f"there is no container {instance.id}")
        if container.state in ENDED:
            printed = ""
            with suppress(errors.ProviderError):  # it must not hide why it ended
                printed = self._engine.log(container.name)
            raise end_error(container, printed)
        if container.state != "running":
            raise errors.UnreachableError(f"container {container.name} is {container.state}")
        if container.ssh_port is None:
            raise errors.UnreachableError(f"container {container.name} is on no network")
        run_id = run_id_in(container.labels[containers.LABEL])
        known = self._keys.known_hosts(run_id, container.name)
        login = Login(
            addresses=[(self._engine.host or containers.LOCALHOST, container.ssh_port)],
            key=self._keys.pair(run_id),
            hosts=KnownHosts(known, read_fingerprints=lambda: self._host_keys.fingerprints(container.name)),
            user=self.login,
        )
        return SshRemote(login, root=BOX, env={}, is_gone=lambda: self._find_owned(container.name) is None)

    def destroy(self, instance_id: str) -> None:
        """Remove the container, its volumes and its network."""
        container = self._find_owned(instance_id)
        if container is not None:
            # The container first: Docker refuses to remove a network that is in use.
            self._engine.remove(container.name)
            if name := container.labels.get(containers.NETWORK):
                # An image may set the same labels: only a network of this ledger is removed.
                owner = containers.read_owner_id(self._state)
                if name in self._engine.networks(f"{containers.OWNER}={owner}"):
                    self._engine.remove_network(name)

    def forget(self, run_id: str) -> None:
        self._keys.forget(run_id)

    def describe(self) -> str:
        docker_host = self._engine.docker_host()
        gpus = "GPUs" if docker_host.has_gpus else "no GPUs"
        built = sorted({image.variant for image in local_images(self._engine.client)})
        variants = ", ".join(built) or "none yet (vastrun image build)"
        return (
            f"Docker {docker_host.version} on {docker_host.name}: {docker_host.cores} cores, "
            f"{docker_host.memory_gb:.0f} GB memory, {gpus}; vastrun's images: {variants}"
        )

    def _find_owned(self, name: str) -> containers.Container | None:
        """Return the container if this ledger owns it. Docker also resolves ids and prefixes as names."""
        container = self._engine.container(name) if _NAME.fullmatch(name) else None
        is_owned = container is not None and container.labels.get(
            containers.OWNER
        ) == containers.read_owner_id(self._state)
        return container if is_owned else None


def _instance(container: containers.Container) -> Instance:
    address = container.addresses.get(container.labels.get(containers.NETWORK, ""))
    return Instance(
        id=container.name,
        label=container.labels[containers.LABEL],
        state=container.state,
        usd_per_hour=0.0,
        rented_at=container.created_at,
        image=container.image,
        rendezvous=f"{address}:29400" if address else "",
    )


def choose_image(spec: JobSpec, hardware: Hardware, engine: Engine, lock: Lock) -> tuple[str, bool]:
    """Return the image's name, and whether it is one of vastrun's. Raises NoOfferError with a hint."""
    if spec.image is not None:
        if not engine.has_image(spec.image):
            raise errors.NoOfferError(f"Docker has no image {spec.image}", hint=f"docker pull {spec.image}")
        return spec.image, False
    # Variants for GPUs also train without them.
    on_gpus = spec.resources.gpus > 0
    driver_cuda = hardware.cuda or math.inf
    for_gpus = [
        name
        for name, image in lock.images.items()
        if image.cuda is not None and (not on_gpus or image.driver_cuda <= driver_cuda)
    ]
    variants = for_gpus if on_gpus else [_CPU, *for_gpus]
    # Only images that exist already: a launch must not wait for a build, which takes minutes.
    for variant in variants:
        built = newest_local_image(engine.client, variant, lock)
        if built is not None:
            return built.reference or built.id, True
    known = " or ".join(variants)
    raise errors.NoOfferError(
        f"Docker has no image of vastrun for this job ({known or 'no variant fits the driver'})",
        hint=f"vastrun image build --variant {variants[0] if variants else _CPU}, or image: in the job file",
    )
