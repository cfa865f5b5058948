"""Records of Docker's responses: containers, networks, the daemon's computer."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vastrun.launcher.core.errors import StorageError
from vastrun.launcher.ssh.keys import write_once

SSH_PORT = 22


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
class DockerNetwork:
    """A network created by vastrun."""

    name: str
    created_at: float
    """Epoch seconds."""

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> DockerNetwork:
        """Parse a row of a list."""
        created = datetime.fromisoformat(row["Created"][:19]).replace(tzinfo=UTC)
        return cls(name=row["Name"], created_at=created.timestamp())


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


_NAME = "docker-owner"


def read_owner_id(state: Path) -> str:
    """Return a random id for the ledger in this folder, shared by its launchers. Raises StorageError."""
    path = state / _NAME
    try:
        if not path.exists():
            write_once(path, secrets.token_hex(8).encode())
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(
            f"cannot read the id that marks this ledger's containers: {error}", hint=f"remove {path}"
        ) from error
