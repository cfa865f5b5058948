"""What Docker says of containers and of its computer, as nouns."""

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
    """Epoch seconds; as `image`, known from a list."""
    image: str = ""
    """By its name and the id of what the name stood for."""
    exit_code: int = 0
    out_of_memory: bool = False
    """The kernel killed something in it for memory."""
    ssh_port: int | None = None
    """On the daemon's computer; None: there is no way in."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Its own by the names of its networks; known from a list."""

    @classmethod
    def listed(cls, row: Mapping[str, Any]) -> Container:
        """Read a row of a list: nothing is known of its end or its ports."""
        return cls(
            name=(row["Names"] or [row["Id"]])[0].removeprefix("/"),
            labels=row["Labels"] or {},
            state=row["State"],
            created_at=float(row["Created"]),
            image=f"{row['Image']} {row['ImageID']}",
            addresses=_addresses(row),
        )

    @classmethod
    def inspected(cls, row: Mapping[str, Any]) -> Container:
        """Read what the daemon tells of a single container."""
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
    """None where it does not run."""
    networks = (row.get("NetworkSettings") or {}).get("Networks") or {}
    found = {name: (network or {}).get("IPAddress") for name, network in networks.items()}
    return {name: address for name, address in found.items() if address}


@dataclass(frozen=True, kw_only=True)
class DockerNetwork:
    """A network that we made."""

    name: str
    created_at: float
    """Epoch seconds."""

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> DockerNetwork:
        """Read a row of a list."""
        created = datetime.fromisoformat(row["Created"][:19]).replace(tzinfo=UTC)
        return cls(name=row["Name"], created_at=created.timestamp())


@dataclass(frozen=True, kw_only=True)
class DockerHost:
    """The computer that containers run on."""

    name: str
    version: str
    """Of Docker."""
    cores: int
    memory_gb: float
    folder: str
    """Where the daemon keeps containers, on that computer."""
    gives_gpus: bool
    """To containers, as far as it says."""

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> DockerHost:
        return cls(
            name=info["Name"],
            version=info["ServerVersion"],
            cores=info["NCPU"],
            memory_gb=info["MemTotal"] / 1e9,
            folder=info["DockerRootDir"],
            gives_gpus="nvidia" in (info.get("Runtimes") or ()),
        )


_NAME = "docker-owner"


def owner_of(state: Path) -> str:
    """Return a word for the ledger in this folder, the same for every launcher. Raises StorageError."""
    path = state / _NAME
    try:
        if not path.exists():
            write_once(path, secrets.token_hex(8).encode())
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(
            f"cannot tell whose containers are ours: {error}", hint=f"remove {path}"
        ) from error
