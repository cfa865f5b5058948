"""A slow link between two network namespaces of this computer, as between machines of two data centres.

Each namespace has a TUN device; what it sends is read here, and written to the other when the link would
have brought it: so many bits a second, then a delay. What would wait for longer than the buffer lasts is
dropped, as by a router. Needs root and /dev/net/tun.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import secrets
import select
import struct
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.trainer.distributed.networks import Machine

_MTU = 1500
_TUNSETIFF = 0x400454CA  # linux/if_tun.h
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_CLONE_NEWNET = 0x40000000
_BUFFER_S = 0.5
_NEVER_S = 0.2


@dataclass(kw_only=True)
class Direction:
    """One direction of the link."""

    source: int
    target: int
    bits_per_s: float
    delay_s: float
    carried: int = 0
    """Bytes that it brought, or will."""
    _free_at: float = 0.0
    _waiting: deque[tuple[float, bytes]] = field(default_factory=deque)

    def take(self, now: float) -> None:
        """Read one packet, and put it where it will have arrived."""
        packet = os.read(self.source, 1 << 16)
        starts_at = max(now, self._free_at)
        if starts_at - now > _BUFFER_S:
            return
        self.carried += len(packet)
        self._free_at = starts_at + 8 * len(packet) / self.bits_per_s
        self._waiting.append((self._free_at + self.delay_s, packet))

    def bring(self, now: float) -> float:
        """Write what has arrived; return in how many seconds the next one does."""
        while self._waiting and self._waiting[0][0] <= now:
            os.write(self.target, self._waiting.popleft()[1])
        return self._waiting[0][0] - now if self._waiting else _NEVER_S


@dataclass(frozen=True, kw_only=True)
class SlowLink:
    """Two machines, and both directions between them."""

    machines: tuple[Machine, Machine]
    directions: tuple[Direction, Direction]

    @property
    def carried_mb(self) -> float:
        """What it carried so far, both directions together."""
        return sum(direction.carried for direction in self.directions) / 1e6


@contextmanager
def slow_link(*, bits_per_s: float, delay_s: float) -> Iterator[SlowLink]:
    """Two machines with the link between them, both directions alike; gone at the end.

    Raises OSError, CalledProcessError where this computer does not let us.
    """
    mark = secrets.token_hex(3)
    first, second = (Machine(f"vr{mark}-{n}", f"vr{mark}-{n}", f"10.213.8.{n + 1}") for n in (0, 1))
    with ExitStack() as stack:
        here, there = (_device(stack, machine) for machine in (first, second))
        rates = {"bits_per_s": bits_per_s, "delay_s": delay_s}
        directions = (
            Direction(source=here, target=there, **rates),
            Direction(source=there, target=here, **rates),
        )
        over = threading.Event()
        relay = threading.Thread(target=_relay, args=(directions, over), daemon=True)
        relay.start()
        stack.callback(relay.join)
        stack.callback(over.set)
        yield SlowLink(machines=(first, second), directions=directions)


def _relay(directions: tuple[Direction, Direction], over: threading.Event) -> None:
    of_source = {direction.source: direction for direction in directions}
    while not over.is_set():
        now = time.monotonic()
        wait_s = min(direction.bring(now) for direction in directions)
        ready, _, _ = select.select([*of_source], [], [], max(0.0, min(wait_s, _NEVER_S)))
        for source in ready:
            of_source[source].take(time.monotonic())


def _device(stack: ExitStack, machine: Machine) -> int:
    """Make the namespace and its device, and return what reads and writes the device's packets."""
    _ip("netns", "add", machine.namespace)
    stack.callback(_ip, "netns", "delete", machine.namespace)
    # In a thread of its own: a namespace is that of a thread.
    with ThreadPoolExecutor(max_workers=1) as thread:
        device = thread.submit(_open, machine).result()
    stack.callback(os.close, device)
    inside = ("-n", machine.namespace)
    _ip(*inside, "address", "add", f"{machine.address}/24", "dev", machine.interface)
    _ip(*inside, "link", "set", machine.interface, "mtu", str(_MTU), "up")
    _ip(*inside, "link", "set", "lo", "up")
    return device


def _open(machine: Machine) -> int:
    with Path("/run/netns", machine.namespace).open() as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "cannot enter a network namespace")
    device = os.open("/dev/net/tun", os.O_RDWR)
    request = struct.pack("16sH22x", machine.interface.encode(), _IFF_TUN | _IFF_NO_PI)
    fcntl.ioctl(device, _TUNSETIFF, request)
    return device


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
