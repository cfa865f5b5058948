"""Profiling: the files of a profile, and how the launcher requests one. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from vastrun.contract import layout
from vastrun.contract.records import Pattern, Range, Text

MAX_STEPS = 100
"""Maximum steps of one profile: a step of a small model takes 2 MB in an uncompressed trace."""
MAX_RAW_TRACE_BYTES = 1 << 30
"""Maximum size of an uncompressed trace; a larger one is deleted on the box."""
MAX_TRACE_BYTES = 256 << 20
"""Maximum size of a compressed trace; the box deletes a larger one, and the launcher rejects it."""
MAX_TABLE_BYTES = 1 << 20
"""Maximum size of the table of operations."""
MAX_REQUEST_BYTES = 1 << 10
"""Maximum size of a request, and of its response."""

RequestId = Annotated[str, Pattern(r"[0-9a-f]{16}")]


@dataclass(frozen=True, kw_only=True)
class ProfileRequest:
    """A request for a profile, as the launcher writes it to `profile/request.json`."""

    id: RequestId
    steps: Annotated[int, Range(1, MAX_STEPS)]


@dataclass(frozen=True, kw_only=True)
class FileDigest:
    """The size of a file and its SHA-256."""

    size: Annotated[int, Range(1, MAX_TRACE_BYTES)]
    sha256: Annotated[str, Pattern(r"[0-9a-f]{64}")]


@dataclass(frozen=True, kw_only=True)
class ProfileResponse:
    """The response of rank 0, when the profile is complete or has failed: `profile/response.json`."""

    id: RequestId
    """Id of the request."""
    step: Annotated[int, Range(0, 10**12)] = 0
    """First recorded step, which the names of the files contain."""
    trace: FileDigest | None = None
    operations: FileDigest | None = None
    fault: Annotated[str, Text(300)] = ""
    """Reason why there is no trace."""


def trace_path(step: int) -> str:
    """Return the path on the box of the trace whose first recorded step is `step`."""
    return f"{layout.PROFILES}/trace-step-{step}.json.gz"


def operations_path(step: int) -> str:
    """Return the path on the box of the table of operations that belongs to that trace."""
    return f"{layout.PROFILES}/operations-step-{step}.txt"


def memory_path(rank: int) -> str:
    """Return the path on the box of a rank's memory snapshot."""
    return f"{layout.PROFILES}/memory-rank-{rank}.pickle"
