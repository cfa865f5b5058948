"""A box as a container: what the daemon is asked for, so that it starts as Vast starts one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vastrun.launcher.core import RentalOrder
from vastrun.launcher.providers.docker.rows import SSH_PORT
from vastrun.launcher.providers.onstart import onstart_text

LABEL, PROVIDER, OWNER = "io.vastrun.label", "io.vastrun.provider", "io.vastrun.owner"
NETWORK = "io.vastrun.network"
"""Names the network that the containers of a run share, where it has several; else empty.

Each label of ours is always set: an image's own label of that name would be the container's."""
CPU_ONLY = "cpu"
"""The id of an offer without GPUs; any other is the list of those that the container gets."""
HERE, ANYWHERE = "127.0.0.1", "0.0.0.0"
"""Where a box can be reached from: the daemon's computer alone, or any other."""
_CAPABILITIES = (
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL"),
    *("NET_BIND_SERVICE", "SETGID", "SETUID", "SYS_CHROOT"),
)
"""What an SSH server and apt need of root's rights."""
_MOST_PROCESSES = 16_384
"""Threads count, too: a program that only multiplies must not take the computer along."""
_INIT = Path(__file__).with_name("init.sh")
_BEGIN = 'printf %s "$1" >/.launch && printf %s "$2" >~/onstart.sh && exec bash /.launch'
"""Scripts that are written down show their names, and not their texts, among the processes."""


@dataclass(frozen=True, kw_only=True)
class ContainerBox:
    """A container to be made."""

    name: str
    order: RentalOrder
    public_key: str
    """Of the run; it is let in."""
    owner: str
    shm_gb: float
    """How much shared memory there may be: ranks and loaders exchange data there, and Docker gives 64 MB."""
    published_at: str
    """HERE or ANYWHERE."""

    @property
    def network(self) -> str:
        """The name of the network of its run; empty: it has one node, on Docker's own network."""
        return self.order.nodes[0] if self.order.nodes else ""


def config_of(box: ContainerBox) -> dict[str, Any]:
    """Return what runs in the container. Holds no secret."""
    order = box.order
    injected = {
        "CONTAINER_ID": box.name,
        "CONTAINER_LABEL": order.label,
        "GPU_COUNT": str(order.offer.gpus),
        "SSH_PUBLIC_KEY": box.public_key,
        "HOME": "/root",
    }
    # In `environment` ours come last: a job must not rename the box or its key.
    return {
        "image": order.image,
        "entrypoint": ["bash", "-c", _BEGIN, "begin"],
        "command": [_INIT.read_text(encoding="utf-8"), onstart_text(order.onstart)],
        "user": "root",
        "environment": {**order.env, **injected},
        "labels": {LABEL: order.label, PROVIDER: "docker", OWNER: box.owner, NETWORK: box.network},
        "ports": [SSH_PORT],
    }


def limits_of(box: ContainerBox) -> dict[str, Any]:
    """Return what the container may use, and how it is reached."""
    order = box.order
    limits: dict[str, Any] = {
        "port_bindings": {SSH_PORT: (box.published_at,)},
        "shm_size": _bytes(box.shm_gb),
        "cap_drop": ["ALL"],
        "cap_add": list(_CAPABILITIES),
        "security_opt": ["no-new-privileges"],
        "pids_limit": _MOST_PROCESSES,
    }
    if box.network:
        limits |= {"network_mode": box.network}
    if order.memory_gb:
        # The same with swap: a box that needs more is killed here as it would be elsewhere.
        limits |= {"mem_limit": _bytes(order.memory_gb), "memswap_limit": _bytes(order.memory_gb)}
    if order.offer.id != CPU_ONLY:
        gpus = {"device_ids": order.offer.id.split(","), "capabilities": [["gpu"]]}
        limits |= {"device_requests": [gpus]}
    return limits


def _bytes(gb: float) -> int:
    return int(gb * 1e9)
