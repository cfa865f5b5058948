"""Rendezvous of a run's nodes: the provider names it; a box on this computer could have written it.

When the provider only names a network, the box reports its address on it.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network

from vastrun.launcher.core import Cause, Instance
from vastrun.launcher.core.errors import BoxError, ProviderError, UnreachableError
from vastrun.launcher.gate import caps

_HOST_PORT = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252})|\[[0-9A-Fa-f:.]{2,45}\]):(\d{1,5})", re.ASCII
)
_MAX_PORT = (1 << 16) - 3
"""The next two ports are used, too."""
ADDRESSES = "hostname -I 2>/dev/null || awk '/32 host LOCAL/ { print a } { a = $2 }' /proc/net/fib_trie"
"""Prints the addresses of a box's interfaces, in any POSIX shell; images need not have `ip`."""
_MIN_PREFIX_BITS = 8
"""Prefix length of the largest private network."""


def parse_rendezvous(machine: Instance) -> str:
    """Return HOST:PORT for the other nodes, validated. Raises ProviderError when it is invalid."""
    found = _HOST_PORT.fullmatch(machine.rendezvous)
    if found is None or not 0 < int(found[1]) <= _MAX_PORT:
        raise ProviderError(f"{machine.id} has an invalid rendezvous address: {machine.rendezvous[:80]!r}")
    return machine.rendezvous


def find_address(subnet: str, printed: str) -> str:
    """Find the first address on the network in the output of `ADDRESSES`.

    Raises UnreachableError while the provider names no private network. Raises BoxError when the box has no
    address on it: other nodes would connect to any address that the box may choose.
    """
    try:
        network = IPv4Network(subnet, strict=False)
    except ValueError:
        network = None
    if network is None or not network.is_private or network.prefixlen < _MIN_PREFIX_BITS:
        raise UnreachableError(
            f"{subnet[:80]!r} is not a private network that nodes can share", cause=Cause.PROVIDER
        )
    words = printed[: caps.ADDRESSES_CHARACTERS].split()
    found = next((address for word in words if (address := _address(word)) and address in network), None)
    if found is None:
        raise BoxError(f"the machine has no interface on {network}, the network that its run's nodes share")
    return str(found)


def _address(word: str) -> IPv4Address | None:
    try:
        return IPv4Address(word)
    except ValueError:
        return None
