"""Causes in words."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.core import Cause, Run

WORDS: Mapping[Cause, str] = {
    Cause.USER_ERROR: "",
    Cause.SETUP: "set-up failed",
    Cause.OUT_OF_MEMORY: "out of memory",
    Cause.SIGNAL: "a process was killed",
    Cause.COMMUNICATION: "the ranks could not communicate",
    Cause.DATA: "the data set is faulty",
    Cause.DIVERGED: "the training diverged",
    Cause.DISK: "the machine's disk is full",
    Cause.HOST: "the machine is faulty",
    Cause.STORAGE: "this computer could not write",
    Cause.HANG: "",
    Cause.STOPPED: "",
    Cause.TIME_LIMIT: "time limit",
    Cause.MONEY_LIMIT: "money limit",
    Cause.PREEMPTED: "",
    Cause.LOST: "",
    Cause.NO_OFFER: "",
    Cause.PROVIDER: "the provider failed",
    Cause.UNPROVEN: "success is not proven",
    Cause.CONTRADICTION: "the evidence contradicts itself",
    Cause.INTERNAL: "a bug in vastrun",
}
"""Before the detail; empty where the verdict and the detail say it already."""


def because(run: Run) -> str:
    """Why the run ended as it did: `out of memory: rank 1 failed at step 4: …`. Empty for a success."""
    words = "" if run.cause is None else WORDS[run.cause]
    return ": ".join(filter(None, (words, run.detail)))
