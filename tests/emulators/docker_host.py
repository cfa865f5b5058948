"""A host whose boxes are containers: its daemon, its image, and the end of what dead emulators left."""

import contextlib
import os
import secrets
from ipaddress import ip_network
from pathlib import Path

import docker
from docker.errors import DockerException, NotFound
from docker.models.containers import Container

from tests.emulators.box import Graphics
from tests.emulators.container_box import ContainerBox

LABEL = "io.vastrun.emulator"
"""On every container: the emulator's id, which begins with the number of its process."""


class DockerHost:
    """Raises RuntimeError where there is no daemon, or not that image."""

    def __init__(self, image: str) -> None:
        try:
            self._docker = docker.from_env(max_pool_size=64, timeout=60)
            self._image = self._docker.images.get(image).id
        except DockerException as error:
            raise RuntimeError(
                f"the emulator needs a Docker daemon with the image {image}: {error}"
            ) from error
        self.id = f"{os.getpid()}.{secrets.token_hex(3)}"
        for container in self._labelled(LABEL):
            process = container.labels[LABEL].partition(".")[0]
            if not Path(f"/proc/{process}").exists():
                _remove(container)

    @property
    def address(self) -> str:
        """This computer, as boxes reach it."""
        bridge = self._docker.networks.get("bridge").attrs["IPAM"]["Config"][0]
        # Some daemons leave the gateway of this network out: it is the first address.
        address: str = bridge.get("Gateway") or str(next(ip_network(bridge["Subnet"]).hosts()))
        return address

    def make_box(self, name: str, graphics: Graphics) -> ContainerBox:
        """An empty box; it is a container from its first start on."""
        return ContainerBox(
            self._docker,
            image=self._image,
            name=f"{name}.{self.id}",
            labels={LABEL: self.id},
            graphics=graphics,
        )

    def containers(self) -> list[Container]:
        """Those of this emulator, in whatever state."""
        return self._labelled(f"{LABEL}={self.id}")

    def close(self) -> None:
        """No container of this emulator is left."""
        for container in self.containers():
            _remove(container)
        self._docker.close()

    def _labelled(self, label: str) -> list[Container]:
        return self._docker.containers.list(all=True, filters={"label": label}, ignore_removed=True)


def _remove(container: Container) -> None:
    with contextlib.suppress(NotFound):
        container.remove(force=True, v=True)
