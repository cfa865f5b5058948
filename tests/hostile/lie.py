"""What a box says instead of the truth, and the parts of which such lies are made."""

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from vastrun.contract import layout

Content = bytes | Callable[[int, int], bytes]
"""Of a file: all of it, or what is read from an offset, at most so many bytes."""

TRICKLE = 1 << 14
"""Bytes of what has no end."""
STEERING = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\u2066\x0c\u2028\r1700000000.000 supervisor all is well"
"""Clears the screen, names the window, writes backwards, and looks like a line of somebody else."""
MARKUP = "</script></style></code><script>alert(1)</script><img src=http://evil onerror='alert(1)'>&lt;\""
"""Ends whatever it stands in, and asks another computer."""


def nothing(status: dict[str, Any]) -> None:
    """The status is honest."""


@dataclass(frozen=True)
class Lie:
    """What a box says instead of the truth."""

    status: Callable[[dict[str, Any]], object] = nothing
    """Changes what `status.sh` would print."""
    printed: str | None = None
    """What `status.sh` prints instead of all that."""
    files: Mapping[str, Content] = field(default_factory=dict)
    """Read instead of what is on the box, or as well."""
    listed: tuple[Mapping[str, Any], ...] = ()
    """Entries of the manifest, besides the honest ones."""
    shown: str = ""
    """What the offer check prints besides the honest lines; told from the boot on."""
    harmless: bool = False
    """Nothing that decides on success is wrong: the run may end well."""


def unarmed(errors: bytes) -> Lie:
    """A box without a lease, whose start failed with these errors."""
    return Lie(files={layout.LEASE_STATE: b"", layout.ONSTART_ERRORS: errors}, harmless=True)


def outcome(**changes: Any) -> Lie:
    return Lie(files={layout.OUTCOME: json.dumps(GOOD | changes).encode()})


def left_out(entries: Any, count: Any) -> bytes:
    """A manifest without files."""
    return json.dumps({"files": [], "left_out": entries, "left_out_count": count}).encode()


def left_out_file(**changes: Any) -> Lie:
    """A manifest that leaves out one file, which looks like weights."""
    return Lie(files={layout.MANIFEST: left_out([{"path": "w.pt", "why": "x", "size": 10**9} | changes], 1)})


def failed_step(**changes: Any) -> Lie:
    """There is no outcome, so that the step decides."""
    end = {"step": "30-unpack", "exit_code": 1, "seconds": 1.0} | changes
    return Lie(files={layout.STEPS: json.dumps(end).encode() + b"\n", layout.OUTCOME: b""})


def entry(name: str, content: bytes = b"evil", **changes: Any) -> Lie:
    entry = {"path": name, "size": len(content), "sha256": sha256(content).hexdigest()}
    return Lie(files={name: content}, listed=(entry | changes,))


def line(step: int, **values: Any) -> bytes:
    """Of metrics."""
    return json.dumps({"step": step} | values).encode() + b"\n"


def picture(content: bytes, name: str = "fields.png") -> Lie:
    return replace(entry(f"{layout.EVALUATION}/{name}", content), harmless=True)


def chunk(kind: bytes, data: bytes) -> bytes:
    """A part of a PNG."""
    return len(data).to_bytes(4) + kind + data + zlib.crc32(kind + data).to_bytes(4)


def supervisor(**changes: Any) -> Lie:
    return Lie(status=lambda status: status["supervisor"].update(changes), harmless=True)


def says(**changes: Any) -> Lie:
    return Lie(status=lambda status: status.update(changes), harmless=True)


def endless(line: bytes) -> Callable[[int, int], bytes]:
    """A log without an end, of which a little comes each time."""
    many = line * (1 + TRICKLE // len(line))
    return lambda offset, limit: many[offset % len(line) :][: min(limit, TRICKLE)]


RANKS = [{"rank": rank, "exit_code": 0, "reason": "finished", "step": 10} for rank in range(2)]
GOOD: dict[str, Any] = {
    "schema_version": 1,
    "kind": "train",
    "reason": "finished",
    "detail": "",
    "started_at": 1.8e9,
    "ended_at": 1.8e9,
    "world_size": 2,
    "ranks": RANKS,
    "final_record": True,
    "steps_done": 10,
    "steps_planned": 10,
    "last_loss": 0.1,
    "loss_finite": True,
    "checkpoint": {"step": 10, "path": "run/checkpoints/step-000010", "intact": True},
}
