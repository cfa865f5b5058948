"""The end of a run: its cause, the verdict that follows from it, and the exit code that says the same. Pure.

How a box's evidence becomes a cause: `decisions/judge.py`; what a box may say: `trainer/contract/reasons.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


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
