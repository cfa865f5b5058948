"""Reasons: why ranks ended, each with its exit codes and its meaning to the launcher.

The way of a reason: a rank ends with a reason and an exit code (`distributed/exit.py`); the supervisor finds
the first failure and its reason (`supervision/rank_ends.py`, `diagnosis.py`), starts the ranks again where
that can help (`restarts.py`), and records it (`conclude.py`). The launcher's gate reads the record
(`gate/evidence.py`), `decisions/judge.py` derives a cause from it and from the proofs, and `core/verdict.py`
says which verdict and exit code follow. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Reason = Literal[
    "finished",
    "error",
    "oom",
    "signal",
    "communication",
    "data",
    "disk",
    "device",
    "diverged",
    "hang",
    "stopped",
]


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """The meaning of one reason: its cause, its exit codes, and whether a restart may help."""

    cause: str | None
    """The launcher's `Cause`, by its value; None: nothing went wrong."""
    exit_code: int = 1
    """Exit code of the supervisor, and so of the onstart step 50-train."""
    rank_exit_code: int = 1
    """Exit code of a rank that ends by itself."""
    is_curable: bool = False
    """True: another start of the ranks may help, so a job's `restarts` may name the cause; else it recurs."""


REASONS: Mapping[Reason, Meaning] = {
    "finished": Meaning(cause=None, exit_code=0, rank_exit_code=0),
    "error": Meaning(cause="user_error"),
    "oom": Meaning(cause="out_of_memory", exit_code=76, rank_exit_code=76, is_curable=True),
    "signal": Meaning(cause="signal", is_curable=True),
    "communication": Meaning(cause="communication", is_curable=True),
    "data": Meaning(cause="data"),
    "disk": Meaning(cause="disk"),
    "device": Meaning(cause="host", is_curable=True),
    "diverged": Meaning(cause="diverged"),
    "hang": Meaning(cause="hang", exit_code=75, is_curable=True),
    # As of a program that SIGTERM ended: 128 + 15.
    "stopped": Meaning(cause="stopped", exit_code=143, rank_exit_code=143),
}
