"""Profiling: the files of a profile. Standard library only."""

from __future__ import annotations

from vastrun.contract import layout

MAX_STEPS = 100
"""Maximum steps of one profile: a step of a small model takes 2 MB in an uncompressed trace."""
MAX_RAW_TRACE_BYTES = 1 << 30
"""Maximum size of an uncompressed trace; a larger one is deleted on the box."""
MAX_TRACE_BYTES = 256 << 20
"""Maximum size of a compressed trace; the box deletes a larger one."""


def trace_path(step: int) -> str:
    """Return the path on the box of the trace whose first recorded step is `step`."""
    return f"{layout.PROFILES}/trace-step-{step}.json.gz"


def operations_path(step: int) -> str:
    """Return the path on the box of the table of operations that belongs to that trace."""
    return f"{layout.PROFILES}/operations-step-{step}.txt"


def memory_path(rank: int) -> str:
    """Return the path on the box of a rank's memory snapshot."""
    return f"{layout.PROFILES}/memory-rank-{rank}.pickle"
