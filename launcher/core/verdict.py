"""The end of a run: its evidence, its cause, its verdict, and the exit code that says the same. Pure.

`decisions/run_assessment.py` derives a cause from a box's evidence; `vastrun/contract/outcome.py` says what a
box may send.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from vastrun.contract.outcome import Outcome
from vastrun.launcher.core.left_out import NONE_LEFT_OUT, LeftOutFiles


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known when a training is over."""

    outcome: Outcome | None
    """None when the box wrote none, or `nonsense`."""
    steps: tuple[StepEnd, ...] = ()
    exit_code: int | None = None
    """Of the whole run on the box."""
    damaged: tuple[str, ...] | None = None
    """Files that did not come home intact, or that no honest box lists; None before they were fetched."""
    left_out: LeftOutFiles = NONE_LEFT_OUT
    """Files that were not offered for download."""
    nonsense: str = ""
    """What of it is invalid; empty: nothing."""


@dataclass(frozen=True, kw_only=True)
class StepEnd:
    """A step that was done."""

    step: str
    """`40-data`."""
    exit_code: int
    seconds: float
    stop: str = ""
    """Whose stop ended it, as the box says; empty: nobody's."""
    last_line: str = ""
    """What it wrote last before it failed, as the box says."""


class Cause(StrEnum):
    """Why a run left the straight road. The first one stays."""

    USER_ERROR = "user_error"
    SETUP = "setup"
    OUT_OF_MEMORY = "out_of_memory"
    SIGNAL = "signal"
    COMMUNICATION = "communication"
    DATA = "data"
    DISK = "disk"
    DIVERGED = "diverged"
    """Its loss or its gradient was no number any more."""
    HOST = "host"
    SLOW = "slow"
    """Its machine trained far below what its kind has shown, and the job wants another then."""
    STORAGE = "storage"
    """This computer could not write, before anything was rented."""
    HANG = "hang"
    STOPPED = "stopped"
    PRUNED = "pruned"
    """Its batch ended it early: others were better. Not a failure."""
    TIME_LIMIT = "time_limit"
    MONEY_LIMIT = "money_limit"
    PREEMPTED = "preempted"
    LOST = "lost"
    NO_OFFER = "no_offer"
    PROVIDER = "provider"
    UNPROVEN = "unproven"
    CONTRADICTION = "contradiction"
    INTERNAL = "internal"


@dataclass(frozen=True, kw_only=True)
class Proof:
    """One piece of evidence for a success. `holds` is None when the evidence is missing."""

    name: str
    holds: bool | None
    text: str


@dataclass(frozen=True, kw_only=True)
class RunAssessment:
    """What the evidence says: no cause means success."""

    cause: Cause | None
    detail: str
    proofs: tuple[Proof, ...] = ()
    node: int | None = None
    """The node that it is about, where the box says which; None: its own."""


class Verdict(StrEnum):
    """How a run ended; follows from its cause by `VERDICT_OF`."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    HUNG = "HUNG"
    STOPPED = "STOPPED"
    PRUNED = "PRUNED"
    LIMIT = "LIMIT"
    PREEMPTED = "PREEMPTED"
    LOST = "LOST"
    NO_OFFER = "NO_OFFER"
    UNKNOWN = "UNKNOWN"


VERDICT_OF: Mapping[Cause | None, Verdict] = {
    None: Verdict.SUCCEEDED,
    Cause.USER_ERROR: Verdict.FAILED,
    Cause.SETUP: Verdict.FAILED,
    Cause.OUT_OF_MEMORY: Verdict.FAILED,
    Cause.SIGNAL: Verdict.FAILED,
    Cause.COMMUNICATION: Verdict.FAILED,
    Cause.DATA: Verdict.FAILED,
    Cause.DIVERGED: Verdict.FAILED,
    Cause.DISK: Verdict.FAILED,
    Cause.HOST: Verdict.FAILED,
    Cause.SLOW: Verdict.FAILED,
    Cause.STORAGE: Verdict.FAILED,
    Cause.PROVIDER: Verdict.FAILED,
    Cause.INTERNAL: Verdict.FAILED,
    Cause.HANG: Verdict.HUNG,
    Cause.STOPPED: Verdict.STOPPED,
    Cause.PRUNED: Verdict.PRUNED,
    Cause.TIME_LIMIT: Verdict.LIMIT,
    Cause.MONEY_LIMIT: Verdict.LIMIT,
    Cause.PREEMPTED: Verdict.PREEMPTED,
    Cause.LOST: Verdict.LOST,
    Cause.NO_OFFER: Verdict.NO_OFFER,
    Cause.UNPROVEN: Verdict.UNKNOWN,
    Cause.CONTRADICTION: Verdict.UNKNOWN,
}

EXIT_CODE_OF: Mapping[Verdict, int] = {
    Verdict.SUCCEEDED: 0,
    Verdict.STOPPED: 3,
    Verdict.PRUNED: 3,
    Verdict.FAILED: 5,
    Verdict.HUNG: 6,
    Verdict.PREEMPTED: 7,
    Verdict.LOST: 7,
    Verdict.NO_OFFER: 8,
    Verdict.LIMIT: 9,
    Verdict.UNKNOWN: 10,
}

EXIT_TEARDOWN_NOT_CONFIRMED = 11
"""Whatever became of the training: a machine may still be rented."""
EXIT_DEVIATES = 12
"""`doctor --rent`: the live service is not as vastrun assumes."""
EXIT_TIMED_OUT = 124
"""`wait --timeout` ran out; as timeout(1) does."""
EXIT_DECLINED = 3
EXIT_INTERRUPTED = 130
"""Ctrl-C, before anything was rented."""
