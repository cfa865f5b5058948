"""TCP ports for tests: free ones that no other process is given meanwhile."""

import itertools
import os
import socket
from collections.abc import Iterator
from functools import cache

_FIRST, _PER_WORKER, _WORKERS = 20_000, 1_000, 12
"""Below 32768: Linux gives the ports above to outgoing connections, at any time."""


def free_port(count: int = 1) -> int:
    """Return a free port that is followed by `count` - 1 other free ones.

    Each pytest worker has a range of its own and goes round it, so that no port is given twice soon.
    """
    first, places = _own_range()
    while True:
        port = first + next(places) % (_PER_WORKER - _MOST)
        if all(_is_free(port + place) for place in range(count)):
            return port


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("", port)).close()
    except OSError:
        return False
    return True


@cache
def _own_range() -> tuple[int, Iterator[int]]:
    """First port of this worker, and the places that it tries, asked for once it was forked."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS
    return _FIRST + worker * _PER_WORKER, itertools.count(os.getpid() % 100 * 8, _MOST)


_MOST = 8
