"""Containers: records of Docker's responses, and the configuration of a box's container, which starts as
Vast's do.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vastrun.launcher.core import RentalOrder
from vastrun.launcher.ledger.signatures import stored_text
from vastrun.launcher.providers.hardware import CPU_ONLY
from vastrun.launcher.providers.onstart import onstart_text

SSH_PORT = 22
LABEL, PROVIDER, OWNER = "io.vastrun.label", "io.vastrun.provider", "io.vastrun.owner"
NETWORK = "io.vastrun.network"
"""Label with the name of the network that the run's containers share; empty for a single container.

Each label is always set: otherwise the container would inherit a label of that name from its image."""
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
class Container:
    """One container."""

    name: str
    labels: Mapping[str, str]
    state: str
    """`created`, `running`, `paused`, `restarting`, `removing`, `exited` or `dead`."""
    created_at: float = 0.0
    """Epoch seconds; like `image`, only known from a list."""
    image: str = ""
    """Name of the image, and the id that the name referred to."""
    exit_code: int = 0
    out_of_memory: bool = False
    """The kernel's OOM killer ended a process in it."""
    ssh_port: int | None = None
    """Published SSH port on the daemon's computer; None when it has none."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """The container's address by network name; only known from a list."""

    @classmethod
    def from_list(cls, row: Mapping[str, Any]) -> Container:
        """Parse a row of a list, which lacks exit code and ports."""
        return cls(
            name=(row["Names"] or [row["Id"]])[0].removeprefix("/"),
            labels=row["Labels"] or {},
            state=row["State"],
            created_at=float(row["Created"]),
            image=f"{row['Image']} {row['ImageID']}",
            addresses=_addresses(row),
        )

    @classmethod
    def from_inspect(cls, row: Mapping[str, Any]) -> Container:
        """Parse the details of a single container."""
        state, published = row["State"], row["NetworkSettings"]["Ports"] or {}
        ports = [int(port["HostPort"]) for port in published.get(f"{SSH_PORT}/tcp") or () if port["HostPort"]]
        return cls(
            name=row["Name"].removeprefix("/"),
            labels=row["Config"]["Labels"] or {},
            state=state["Status"],
            exit_code=state["ExitCode"],
            out_of_memory=state["OOMKilled"],
            ssh_port=next(iter(ports), None),
        )


def _addresses(row: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the addresses by network; empty when the container does not run."""
    networks = (row.get("NetworkSettings") or {}).get("Networks") or {}
    found = {name: (network or {}).get("IPAddress") for name, network in networks.items()}
    return {name: address for name, address in found.items() if address}


@dataclass(frozen=True, kw_only=True)
class DockerHost:
    """The daemon's computer."""

    name: str
    version: str
    """Version of Docker."""
    cores: int
    memory_gb: float
    folder: str
    """Folder of the daemon's data on that computer."""
    has_gpus: bool
    """True when containers can get GPUs, judging by the daemon's runtimes."""

    @classmethod
    def from_row(cls, info: Mapping[str, Any]) -> DockerHost:
        return cls(
            name=info["Name"],
            version=info["ServerVersion"],
            cores=info["NCPU"],
            memory_gb=info["MemTotal"] / 1e9,
            folder=info["DockerRootDir"],
            has_gpus="nvidia" in (info.get("Runtimes") or ()),
        )


def read_owner_id(state: Path) -> str:
    """Return a random id for the ledger in this folder, shared by its launchers. Raises StorageError."""
    return stored_text(state / "docker-owner", lambda: secrets.token_hex(8)).strip()


def container_config(order: RentalOrder, name: str, owner: str, public_key: str) -> dict[str, Any]:
    """Return the configuration of the container of that name, without secrets.

    `public_key`: of the run, which may log in.
    """
    injected = {
        "CONTAINER_ID": name,
        "CONTAINER_LABEL": order.label,
        "GPU_COUNT": str(order.offer.gpus),
        "SSH_PUBLIC_KEY": public_key,
        "HOME": "/root",
    }
    # The injected variables come last: a job must not change the box's name or its key.
    return {
        "image": order.image,
        "entrypoint": ["bash", "-c", _START_COMMAND, "begin"],
        "command": [_INIT.read_text(encoding="utf-8"), onstart_text(order.onstart)],
        "user": "root",
        "environment": {**order.env, **injected},
        "labels": {LABEL: order.label, PROVIDER: "docker", OWNER: owner, NETWORK: network_of(order)},
        "ports": [SSH_PORT],
    }


def network_of(order: RentalOrder) -> str:
    """Return the name of the run's network; empty for one node, which is on Docker's default network."""
    return order.nodes[0] if order.nodes else ""


def container_limits(order: RentalOrder, *, shm_gb: float, published_at: str) -> dict[str, Any]:
    """Return the container's limits, devices and published ports.

    `shm_gb`: size of /dev/shm, where ranks and loaders exchange data; Docker's default is 64 MB.
    `published_at`: LOCALHOST or ALL_INTERFACES.
    """
    limits: dict[str, Any] = {
        "port_bindings": {SSH_PORT: (published_at,)},
        "shm_size": _bytes(shm_gb),
        # A container that runs as root needs only these few capabilities for SSH and apt.
        "cap_drop": ["ALL"],
        "cap_add": list(_CAPABILITIES),
        "security_opt": ["no-new-privileges"],
        "pids_limit": _MAX_PROCESSES,
    }
    if network := network_of(order):
        limits |= {"network_mode": network}
    if order.memory_gb:
        # No swap: a box that needs more memory is killed here as on any other provider.
        limits |= {"mem_limit": _bytes(order.memory_gb), "memswap_limit": _bytes(order.memory_gb)}
    if order.offer.id != CPU_ONLY:
        gpus = {"device_ids": order.offer.id.split(","), "capabilities": [["gpu"]]}
        limits |= {"device_requests": [gpus]}
    return limits


def _bytes(gb: float) -> int:
    return int(gb * 1e9)
