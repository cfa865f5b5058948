"""The phase table and the verdict table: the only places where a phase or a verdict is decided."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from launcher.core import Cause, Phase, Verdict


class Result(StrEnum):
    """How a step went. LOST: the provider said twice that the machine is gone."""

    OK = "ok"
    FAILED = "failed"
    LOST = "lost"


_P = Phase

NEXT: Mapping[Phase, Mapping[Result, Phase]] = {
    # phase       ok                         failed                         lost
    _P.PLAN: {Result.OK: _P.RENT, Result.FAILED: _P.ENDED, Result.LOST: _P.ENDED},
    _P.RENT: {Result.OK: _P.BOOT, Result.FAILED: _P.DESTROY, Result.LOST: _P.DESTROY},
    _P.BOOT: {Result.OK: _P.SHIP, Result.FAILED: _P.DESTROY, Result.LOST: _P.DESTROY},
    _P.SHIP: {Result.OK: _P.TRAIN, Result.FAILED: _P.DESTROY, Result.LOST: _P.DESTROY},
    _P.TRAIN: {Result.OK: _P.COLLECT, Result.FAILED: _P.COLLECT, Result.LOST: _P.DESTROY},
    _P.COLLECT: {Result.OK: _P.DESTROY, Result.FAILED: _P.DESTROY, Result.LOST: _P.DESTROY},
    _P.DESTROY: {Result.OK: _P.ENDED, Result.FAILED: _P.DESTROY, Result.LOST: _P.DESTROY},
}

BEFORE_TRAINING = (Phase.PLAN, Phase.RENT, Phase.BOOT, Phase.SHIP)

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
    Cause.STORAGE: Verdict.FAILED,
    Cause.PROVIDER: Verdict.FAILED,
    Cause.INTERNAL: Verdict.FAILED,
    Cause.HANG: Verdict.HUNG,
    Cause.STOPPED: Verdict.STOPPED,
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
    Verdict.FAILED: 5,
    Verdict.HUNG: 6,
    Verdict.PREEMPTED: 7,
    Verdict.LOST: 7,
    Verdict.NO_OFFER: 8,
    Verdict.LIMIT: 9,
    Verdict.UNKNOWN: 10,
}

EXIT_TEARDOWN_NOT_CONFIRMED = 11
