"""The phase table: the phases of a run, and the only place that decides the next one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Phase(StrEnum):
    """Phase of a run; `NEXT` maps it to the following one."""

    PLAN = "plan"
    RENT = "rent"
    BOOT = "boot"
    SHIP = "ship"
    TRAIN = "train"
    COLLECT = "collect"
    DESTROY = "destroy"
    ENDED = "ended"


class Result(StrEnum):
    """Result of a step. LOST: the provider confirmed twice that the machine is gone."""

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
