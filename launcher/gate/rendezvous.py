"""Where the nodes of a run meet: a provider says it, and on this computer a box could have written it.

Where the provider names a network alone, the box says its address there.
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
_MOST_PORT = (1 << 16) - 3
"""The two ports after it are used, too."""
ADDRESSES = "hostname -I 2>/dev/null || awk '/32 host LOCAL/ { print a } { a = $2 }' /proc/net/fib_trie"
"""Prints the addresses of a box's interfaces, in any POSIX shell; images need not have `ip`."""
_WIDEST = 8
"""Prefix of the largest network that is private."""


def rendezvous_of(machine: Instance) -> str:
    """Return HOST:PORT of the machine as the other nodes reach it. Raises ProviderError when it is none."""
    found = _HOST_PORT.fullmatch(machine.rendezvous)
    if found is None or not 0 < int(found[1]) <= _MOST_PORT:
        raise ProviderError(f"{machine.id} names no place where the nodes meet: {machine.rendezvous[:80]!r}")
    return machine.rendezvous


def address_on(subnet: str, printed: str) -> str:
    """Return the first of the addresses, as `ADDRESSES` printed them, that is on the network.

    Raises UnreachableError when the provider names no private network, by now; BoxError when the box is not
    on it: it may name no other place, where other nodes would connect to.
    """
    try:
        network = IPv4Network(subnet, strict=False)
    except ValueError:
        network = None
    if network is None or not network.is_private or network.prefixlen < _WIDEST:
        raise UnreachableError(
            f"{subnet[:80]!r} is no network on which nodes could meet", cause=Cause.PROVIDER
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
