"""Verdict: evidence, cause, verdict and exit code of a run. Pure.

`decisions/run_assessment.py` derives a cause from a box's evidence; `vastrun/contract/outcome.py` says what a
box may send.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from vastrun.contract.outcome import ExitCode, Outcome, Seconds
from vastrun.contract.program_kind import Proof
from vastrun.contract.records import Text
from vastrun.launcher.core.left_out import NONE_LEFT_OUT, LeftOutFiles


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Evidence of how a training ended."""

    outcome: Outcome | None
    """The box's outcome; None when it wrote none, or an invalid one."""
    steps: tuple[StepEnd, ...] = ()
    exit_code: int | None = None
    """Exit code of the whole run on the box."""
    damaged: tuple[str, ...] | None = None
    """Files that were not downloaded intact, or are invalid; None before the download."""
    left_out: LeftOutFiles = NONE_LEFT_OUT
    """Files that were not offered for download."""
    lost_metrics: tuple[str, ...] = ()
    """Names of the metrics that end in no finite number."""
    nonsense: str = ""
    """Invalid part of the evidence; empty: none."""


@dataclass(frozen=True, kw_only=True)
class StepEnd:
    """An onstart step that has ended: a line of `run/steps.jsonl`."""

    step: Annotated[str, Text(100)]
    """`40-data`."""
    exit_code: ExitCode
    seconds: Seconds = 0.0
    stop: Annotated[str, Text(20)] = ""
    """Cause of the stop that ended it, as the box reports; empty: none."""
    last_line: Annotated[str, Text(400)] = ""
    """Last line that it wrote before it failed, as the box reports."""


class Cause(StrEnum):
    """Cause of a run's failure or early end. The first one stays."""

    USER_ERROR = "user_error"
    SETUP = "setup"
    OUT_OF_MEMORY = "out_of_memory"
    SIGNAL = "signal"
    COMMUNICATION = "communication"
    DATA = "data"
    DISK = "disk"
    DIVERGED = "diverged"
    """Its loss or its gradient became NaN or infinite."""
    GATE_MISSED = "gate_missed"
    """A stage ended with scores that miss the job's gate."""
    HOST = "host"
    SLOW = "slow"
    """No run ends with it now; the ledger has runs of earlier versions that left a slow machine."""
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
    OUTPUTS_LOST = "outputs_lost"
    """Its program had ended, or may have; its machine was gone before its outputs were downloaded."""
    NO_OFFER = "no_offer"
    PROVIDER = "provider"
    UNPROVEN = "unproven"
    CONTRADICTION = "contradiction"
    INTERNAL = "internal"


@dataclass(frozen=True, kw_only=True)
class RunAssessment:
    """Assessment of a run by its evidence. No cause means success."""

    cause: Cause | None
    detail: str
    proofs: tuple[Proof, ...] = ()
    node: int | None = None
    """Node that failed, where the box reports it; None: its own."""


class Verdict(StrEnum):
    """Verdict of a run, which follows from its cause by `VERDICT_OF`."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    HUNG = "HUNG"
    STOPPED = "STOPPED"
    PRUNED = "PRUNED"
    LIMIT = "LIMIT"
    PREEMPTED = "PREEMPTED"
    LOST = "LOST"
    OUTPUTS_LOST = "OUTPUTS_LOST"
    NO_OFFER = "NO_OFFER"
    UNKNOWN = "UNKNOWN"


VERDICT_OF: Mapping[Cause | None, Verdict] = {
    None: Verdict.SUCCEEDED,
    **dict.fromkeys((Cause.USER_ERROR, Cause.SETUP, Cause.OUT_OF_MEMORY, Cause.SIGNAL), Verdict.FAILED),
    **dict.fromkeys((Cause.COMMUNICATION, Cause.DATA, Cause.DIVERGED, Cause.GATE_MISSED), Verdict.FAILED),
    **dict.fromkeys((Cause.DISK, Cause.HOST, Cause.SLOW, Cause.STORAGE), Verdict.FAILED),
    **dict.fromkeys((Cause.PROVIDER, Cause.INTERNAL), Verdict.FAILED),
    Cause.HANG: Verdict.HUNG,
    Cause.STOPPED: Verdict.STOPPED,
    Cause.PRUNED: Verdict.PRUNED,
    Cause.TIME_LIMIT: Verdict.LIMIT,
    Cause.MONEY_LIMIT: Verdict.LIMIT,
    Cause.PREEMPTED: Verdict.PREEMPTED,
    Cause.LOST: Verdict.LOST,
    Cause.OUTPUTS_LOST: Verdict.OUTPUTS_LOST,
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
    Verdict.OUTPUTS_LOST: 7,
    Verdict.NO_OFFER: 8,
    Verdict.LIMIT: 9,
    Verdict.UNKNOWN: 10,
}

EXIT_TEARDOWN_NOT_CONFIRMED = 11
"""Exit code when a machine may still be rented, however the training ended."""
EXIT_TIMED_OUT = 124
"""`wait --timeout` ran out; as timeout(1) does."""
EXIT_DECLINED = 3
EXIT_INTERRUPTED = 130
"""Ctrl-C, before anything was rented."""
