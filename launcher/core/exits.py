"""Exit codes: what the command's status says about a run."""

from __future__ import annotations

from launcher.core import Cause, Phase, Run, Verdict
from launcher.core.phases import EXIT_CODE_OF, EXIT_TEARDOWN_NOT_CONFIRMED, VERDICT_OF

EXIT_TIMED_OUT = 124
"""`wait --timeout` ran out; as timeout(1) does."""
EXIT_DECLINED = 3
EXIT_INTERRUPTED = 130


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
