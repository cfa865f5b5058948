"""Configuration of a box's container, which starts as Vast's containers do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vastrun.launcher.core import RentalOrder
from vastrun.launcher.providers.docker.rows import SSH_PORT
from vastrun.launcher.providers.onstart import onstart_text

LABEL, PROVIDER, OWNER = "io.vastrun.label", "io.vastrun.provider", "io.vastrun.owner"
NETWORK = "io.vastrun.network"
"""Label with the name of the network that the run's containers share; empty for a single container.

Each label is always set: otherwise the container would inherit a label of that name from its image."""
CPU_ONLY = "cpu"
"""Id of an offer without GPUs; other ids are lists of the container's GPUs."""
LOCALHOST, ALL_INTERFACES = "127.0.0.1", "0.0.0.0"
"""Addresses at which a box's SSH port is published."""
_CAPABILITIES = (
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL"),
    *("NET_BIND_SERVICE", "SETGID", "SETUID", "SYS_CHROOT"),
)
"""Capabilities that an SSH server and apt need."""
_MAX_PROCESSES = 16_384
"""Maximum processes and threads: a fork bomb must not take down the computer."""
_INIT = Path(__file__).with_name("init.sh")
_START_COMMAND = 'printf %s "$1" >/.launch && printf %s "$2" >~/onstart.sh && exec bash /.launch'
"""Writes the scripts to files, so that lists of processes show their names instead of their texts."""


@dataclass(frozen=True, kw_only=True)
class ContainerBox:
    """Order for one container."""

    name: str
    order: RentalOrder
    public_key: str
    """Public key of the run, which may log in."""
    owner: str
    shm_gb: float
    """Size of /dev/shm in GB. Ranks and loaders exchange data there; Docker's default is 64 MB."""
    published_at: str
    """LOCALHOST or ALL_INTERFACES."""

    @property
    def network(self) -> str:
        """Name of the run's network; empty for one node, which is on Docker's default network."""
        return self.order.nodes[0] if self.order.nodes else ""


def container_config(box: ContainerBox) -> dict[str, Any]:
    """Return the container's configuration, without secrets."""
    order = box.order
    injected = {
        "CONTAINER_ID": box.name,
        "CONTAINER_LABEL": order.label,
        "GPU_COUNT": str(order.offer.gpus),
        "SSH_PUBLIC_KEY": box.public_key,
        "HOME": "/root",
    }
    # The injected variables come last: a job must not change the box's name or its key.
    return {
        "image": order.image,
        "entrypoint": ["bash", "-c", _START_COMMAND, "begin"],
        "command": [_INIT.read_text(encoding="utf-8"), onstart_text(order.onstart)],
        "user": "root",
        "environment": {**order.env, **injected},
        "labels": {LABEL: order.label, PROVIDER: "docker", OWNER: box.owner, NETWORK: box.network},
        "ports": [SSH_PORT],
    }


def container_limits(box: ContainerBox) -> dict[str, Any]:
    """Return the container's limits, devices and published ports."""
    order = box.order
    limits: dict[str, Any] = {
        "port_bindings": {SSH_PORT: (box.published_at,)},
        "shm_size": _bytes(box.shm_gb),
        # A container that runs as root needs only these few capabilities for SSH and apt.
        "cap_drop": ["ALL"],
        "cap_add": list(_CAPABILITIES),
        "security_opt": ["no-new-privileges"],
        "pids_limit": _MAX_PROCESSES,
    }
    if box.network:
        limits |= {"network_mode": box.network}
    if order.memory_gb:
        # No swap: a box that needs more memory is killed here as on any other provider.
        limits |= {"mem_limit": _bytes(order.memory_gb), "memswap_limit": _bytes(order.memory_gb)}
    if order.offer.id != CPU_ONLY:
        gpus = {"device_ids": order.offer.id.split(","), "capabilities": [["gpu"]]}
        limits |= {"device_requests": [gpus]}
    return limits


def _bytes(gb: float) -> int:
    return int(gb * 1e9)
