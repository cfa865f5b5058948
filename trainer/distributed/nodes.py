"""Nodes: which machine of a training this is, and where all of them meet. Standard library only."""

from __future__ import annotations

import fcntl
import shlex
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from trainer.contract.job import Job

_LOOPBACK = "127.0.0.1"
_SIOCGIFADDR = 0x8915  # linux/sockios.h
_INTERFACE_REQUEST = struct.Struct("16s2x2x4s16x")


@dataclass(frozen=True, kw_only=True)
class Place:
    """This machine among those that train together. The first node is the host of the rendezvous."""

    node: int = 0
    nodes: int = 1
    host: str = "localhost"
    """The first node, as this machine reaches it."""
    port: int = 0
    """The ranks' rendezvous; the supervisors meet at the next one. 0: the kernel picks one while binding."""
    address: str = _LOOPBACK
    """This machine's own, on the route to the host."""
    interface: str | None = None
    """The network interface that has this address."""

    @property
    def is_host(self) -> bool:
        """True on the first node."""
        return self.node == 0

    @property
    def endpoint(self) -> str:
        """The rendezvous, as torch writes it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def ranks(self, each: int) -> range:
        """The ranks of this node when every node has `each`: numbered from the first node to the last."""
        return range(self.node * each, (self.node + 1) * each)


def place_of(nodes: int, environ: Mapping[str, str]) -> Place:
    """What VASTRUN_NODE and VASTRUN_RENDEZVOUS say. Raises ValueError; OSError when the host is unknown."""
    if nodes == 1:
        return Place()
    node = _number(environ.get("VASTRUN_NODE", ""), below=nodes)
    host, port = _endpoint(environ.get("VASTRUN_RENDEZVOUS", ""))
    address = _own_address(host, port)
    return Place(
        node=node, nodes=nodes, host=host, port=port, address=address, interface=_interface_of(address)
    )


def network_environment(place: Place) -> dict[str, str]:
    """The interface that the ranks talk over: gloo would guess by this machine's name, NCCL by speed."""
    if place.interface is None:
        return {}
    # NCCL takes a name for a prefix unless told otherwise.
    return {"GLOO_SOCKET_IFNAME": place.interface, "NCCL_SOCKET_IFNAME": f"={place.interface}"}


def torchrun_line(job: Job, place: Place) -> str:
    """What one would type on this node to start the same ranks without vastrun."""
    options = ["--standalone"]
    if place.nodes > 1:
        options = [
            f"--nnodes={place.nodes}",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={place.endpoint}",
            f"--rdzv-id={job.run_id}",
            f"--rdzv-conf=is_host={int(place.is_host)}",
            f"--local-addr={place.address}",
        ]
    return shlex.join(
        [
            "torchrun",
            *options,
            f"--nproc-per-node={job.ranks}",
            "--max-restarts=0",
            "--no-python",
            *job.program,
        ]
    )


def _number(text: str, *, below: int) -> int:
    if text.isdecimal() and int(text) < below:
        return int(text)
    raise ValueError(f"VASTRUN_NODE: expected a number from 0 to {below - 1}, got {text!r}")


def _endpoint(text: str) -> tuple[str, int]:
    with suppress(ValueError):
        parts = urlsplit(f"//{text}")
        if parts.hostname and parts.port and parts.port < (1 << 16) - 1:
            return parts.hostname, parts.port
    raise ValueError(f"VASTRUN_RENDEZVOUS: expected HOST:PORT of the first node, got {text!r}")


def _own_address(host: str, port: int) -> str:
    """The address that packets to `host` are sent from; none is sent."""
    family, kind, protocol, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0])


def _interface_of(address: str) -> str | None:
    """The interface with this IPv4 address as its first; None when there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has no address
                request = _INTERFACE_REQUEST.pack(name.encode(), b"")
                answer = fcntl.ioctl(any_socket, _SIOCGIFADDR, request)
                if socket.inet_ntoa(_INTERFACE_REQUEST.unpack(answer)[1]) == address:
                    return name
    return None
