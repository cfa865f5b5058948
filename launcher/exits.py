"""Exit codes: what the command's status says about a run."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.model import Cause, Phase, Run, Verdict
from launcher.phases import EXIT_CODE_OF, EXIT_TEARDOWN_NOT_CONFIRMED, VERDICT_OF

EXIT_TIMED_OUT = 124
"""`wait --timeout` ran out; as timeout(1) does."""
EXIT_INTERRUPTED = 130

MEANING: Mapping[int, str] = {
    0: "done: the run succeeded and its machine is gone, or it goes on detached as asked",
    1: "error: this computer, the ledger or the provider stopped the command",
    2: "usage: the command line or the job file is wrong; nothing was done",
    3: "stopped by the user",
    4: "the provider does not accept the key",
    5: "the run failed",
    6: "the run hung",
    7: "the machine was taken away or lost",
    8: "no offer fits the job",
    9: "a time or money limit was reached",
    10: "unknown: a proof of success is missing, or two contradict each other",
    11: "the machine's end is not confirmed: look at once (vastrun reap)",
    EXIT_TIMED_OUT: "wait --timeout ran out",
    EXIT_INTERRUPTED: "interrupted before anything was rented",
}


def verdict_of(run: Run) -> Verdict | None:
    """How the run ended; None while it is open."""
    return VERDICT_OF[run.cause] if run.phase is Phase.ENDED else None


def exit_code_of(run: Run, *, interrupted: bool = False) -> int:
    """The status for a run that was driven as far as it went. `interrupted`: by a signal to this launcher."""
    if run.phase is Phase.DESTROY:
        return EXIT_TEARDOWN_NOT_CONFIRMED
    verdict = verdict_of(run)
    if verdict is None:
        return 0
    if interrupted and run.cause is Cause.STOPPED and run.rented_at is None:
        return EXIT_INTERRUPTED
    return EXIT_CODE_OF[verdict]
