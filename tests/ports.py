"""TCP ports for tests: free ones that no other process is given meanwhile."""

from __future__ import annotations

import itertools
import os
import socket

_FIRST, _PER_WORKER, _WORKERS = 20_000, 1_000, 12
"""Below 32768: Linux gives the ports above to outgoing connections, at any time."""


def free_port(count: int = 1) -> int:
    """Return a free port that is followed by `count` - 1 other free ones.

    Each pytest worker has a range of its own and goes round it, so that no port is given twice soon.
    """
    while True:
        port = _BLOCK + next(_NEXT) % (_PER_WORKER - _MOST)
        if all(_is_free(port + place) for place in range(count)):
            return port


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("", port)).close()
    except OSError:
        return False
    return True


_MOST = 8
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS
_BLOCK = _FIRST + _WORKER * _PER_WORKER
_NEXT = itertools.count(os.getpid() % 100 * 8, _MOST)
