"""XID errors: read GPU errors of the NVIDIA driver from the kernel's log. Standard library only."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

_TIMEOUT_S = 10.0
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:]+)(?:\.\d)?\): (\d+),")

HARDWARE: dict[int, str] = {
    48: "memory error that could not be corrected",
    63: "faulty memory was replaced",
    64: "faulty memory could not be replaced",
    74: "NVLink error",
    79: "fell off the bus",
    94: "memory error, contained",
    95: "memory error, not contained",
    119: "its system processor does not respond",
    120: "its system processor failed",
}
"""Hardware errors by number (NVIDIA's list "XID Errors"); programs cause most of the others."""
LASTING = frozenset({64, 79})
"""Errors that last until the machine is rebooted or repaired."""


@dataclass(frozen=True)
class Xid:
    """One kind of error of one GPU."""

    bus_id: str
    number: int


def read_xids() -> tuple[Xid, ...]:
    """Read the GPU errors since boot; empty where a container may not read the kernel's log."""
    try:
        done = subprocess.run(["dmesg"], capture_output=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return parse_xids(done.stdout.decode(errors="replace").splitlines())


def parse_xids(lines: Iterable[str]) -> tuple[Xid, ...]:
    """Return each kind of hardware error once for each GPU, in order."""
    found = (match for line in lines if (match := _XID.search(line)))
    xids = (Xid(match[1].lower(), int(match[2])) for match in found)
    return tuple(dict.fromkeys(xid for xid in xids if xid.number in HARDWARE))
