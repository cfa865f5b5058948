"""Where the nodes of a run meet: a provider says it, and on this computer a box could have written it."""

from __future__ import annotations

import re

from launcher.core import Instance
from launcher.core.errors import ProviderError

_HOST_PORT = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252})|\[[0-9A-Fa-f:.]{2,45}\]):(\d{1,5})", re.ASCII
)
_MOST_PORT = (1 << 16) - 3
"""The two ports after it are used, too."""


def rendezvous_of(machine: Instance) -> str:
    """Return HOST:PORT of the machine as the other nodes reach it. Raises ProviderError when it is none."""
    found = _HOST_PORT.fullmatch(machine.rendezvous)
    if found is None or not 0 < int(found[1]) <= _MOST_PORT:
        raise ProviderError(f"{machine.id} names no place where the nodes meet: {machine.rendezvous[:80]!r}")
    return machine.rendezvous
