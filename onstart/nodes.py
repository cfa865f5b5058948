"""Nodes: identify this machine among those of a training, and its addresses. Standard library only."""

from __future__ import annotations

import fcntl
import shlex
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from vastrun.contract.job import Job

LOOPBACK = "127.0.0.1"
RANKS_PORT = 2
"""Offset of the port of the ranks' store from that of the rendezvous; the supervisors use the one between."""
_SIOCGIFADDR = 0x8915  # linux/sockios.h
_INTERFACE_REQUEST = struct.Struct("16s2x2x4s16x")


@dataclass(frozen=True, kw_only=True)
class ThisNode:
    """This machine among those that train together. The first node hosts the rendezvous."""

    node: int = 0
    nodes: int = 1
    host: str = "localhost"
    """The first node's name or address, as this machine reaches it."""
    port: int = 0
    """Port of the check of the link; the supervisors use the next one, the ranks the one after that. 0: the
    kernel picks one on binding."""
    address: str = LOOPBACK
    """This machine's address on the route to the host."""
    interface: str | None = None
    """The network interface that has this address; None: unknown, or one node only."""

    @property
    def is_host(self) -> bool:
        """Tell whether this is the first node."""
        return self.node == 0

    @property
    def endpoint(self) -> str:
        """Return HOST:PORT of the rendezvous as torch writes it, with brackets around an IPv6 address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def ranks(self, each: int) -> range:
        """Return the ranks of this node when every node has `each`; they are numbered node by node."""
        return range(self.node * each, (self.node + 1) * each)


def this_node_of(nodes: int, environ: Mapping[str, str]) -> ThisNode:
    """Read this node from VASTRUN_NODE and VASTRUN_RENDEZVOUS, which a single node does not need.

    Raises ValueError; OSError when the host is unknown.
    """
    if nodes == 1:
        return ThisNode()
    node = environ.get("VASTRUN_NODE", "")
    if not node.isdecimal() or int(node) >= nodes:
        raise ValueError(f"VASTRUN_NODE: expected a number from 0 to {nodes - 1}, got {node!r}")
    host, port = _endpoint(environ.get("VASTRUN_RENDEZVOUS", ""))
    family, kind, protocol, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    # Connecting a UDP socket sends nothing: the kernel only looks up the route.
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(target)
        address = str(probe.getsockname()[0])
    return ThisNode(
        node=int(node), nodes=nodes, host=host, port=port, address=address, interface=interface_of(address)
    )


def network_environment(this_node: ThisNode) -> dict[str, str]:
    """Return the variables that name the ranks' network interface; empty if it is unknown.

    Without them gloo guesses the interface by this machine's name, and NCCL by its speed.
    """
    if this_node.interface is None:
        return {}
    # NCCL treats a name as a prefix unless a `=` precedes it.
    return {"GLOO_SOCKET_IFNAME": this_node.interface, "NCCL_SOCKET_IFNAME": f"={this_node.interface}"}


def torchrun_line(job: Job, this_node: ThisNode) -> str:
    """Return the torchrun command that starts the same ranks on this node without vastrun."""
    options = ["--standalone"]
    if this_node.nodes > 1:
        options = [
            f"--nnodes={this_node.nodes}",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={this_node.endpoint}",
            f"--rdzv-id={job.run_id}",
            f"--rdzv-conf=is_host={int(this_node.is_host)}",
            f"--local-addr={this_node.address}",
        ]
    return shlex.join(
        [
            "torchrun",
            *options,
            f"--nproc-per-node={job.ranks}",
            # As here: the supervisor restarts ranks, not torchrun
            # (docs/decisions/01-supervisor-restarts.md).
            "--max-restarts=0",
            "--no-python",
            *job.rank_command,
        ]
    )


def _endpoint(text: str) -> tuple[str, int]:
    with suppress(ValueError):  # of urlsplit, and of `port` for what is no port
        parts = urlsplit(f"//{text}")
        # The next two ports must exist, too: for the supervisors and the ranks.
        if parts.hostname and parts.port and parts.port < (1 << 16) - 2:
            return parts.hostname, parts.port
    raise ValueError(f"VASTRUN_RENDEZVOUS: expected HOST:PORT of the first node, got {text!r}")


def interface_of(address: str) -> str | None:
    """Return the interface whose first address is this IPv4 address; None when there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has no address
                request = _INTERFACE_REQUEST.pack(name.encode(), b"")
                answer = fcntl.ioctl(any_socket, _SIOCGIFADDR, request)
                if socket.inet_ntoa(_INTERFACE_REQUEST.unpack(answer)[1]) == address:
                    return name
    return None
