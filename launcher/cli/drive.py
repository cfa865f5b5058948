"""Driving a run from a command: turn signals into requests, show the end, return its exit code."""

from __future__ import annotations

from collections.abc import Callable

from vastrun.launcher.app_context import AppContext
from vastrun.launcher.cli.background import hand_over_run
from vastrun.launcher.cli.failures import set_error_run
from vastrun.launcher.cli.output import say, show
from vastrun.launcher.commands.attempts import Attempts
from vastrun.launcher.commands.chains import chain_of
from vastrun.launcher.commands.queries import ending_of
from vastrun.launcher.core import Phase, Run, UserRequest
from vastrun.launcher.core.verdict import EXIT_TIMED_OUT
from vastrun.launcher.run_services import attempts_for, settle_bills
from vastrun.launcher.ui.documents.runs import RunEndDocument
from vastrun.launcher.ui.interrupts import Interrupts
from vastrun.launcher.ui.render.summary import summary


def drive_to_end(
    app: AppContext,
    work: Callable[[Attempts], Run],
    *,
    began: float,
    as_json: bool,
    first: UserRequest = UserRequest.NONE,
    request: UserRequest = UserRequest.NONE,
    until: float | None = None,
    views: bool = False,
) -> int:
    """Do `work` while signals become requests, show how the run ended, and return its exit code.

    Earlier runs are settled too, because their provider has just been reached. A run that its user detached
    continues in the background.

    `first`: meaning of the first Ctrl-C (NONE: ask); `request`: holds from the start; `until`: epoch seconds
    at which the wait ends; `views`: no signal stops the run.
    """
    interrupts = app.make.interrupts(first, request, until, views)
    with interrupts.listening(), attempts_for(app, interrupts, began=began) as attempts:
        run = work(attempts)
        if run.phase is Phase.ENDED:
            settle_bills(app, run.provider)
    set_error_run(run)
    is_detached = interrupts.current() in (UserRequest.DETACH, UserRequest.DETACH_ONCE_TRAINING)
    notice = hand_over_run(app, run) if run.phase is not Phase.ENDED and is_detached else ""
    show_end(app, run, as_json=as_json)
    if notice:
        say(f"\n{notice}", err=True)
    return _exit_code(run, interrupts)


def show_end(app: AppContext, run: Run, *, as_json: bool) -> None:
    """Print the summary of an ended run, or the state of a run that continues without this launcher."""
    now, ledger = app.now(), app.ledger()
    ending = ending_of(ledger, run, chain_of(ledger, run), now)
    show(RunEndDocument.of(ending), summary(ending, now), as_json=as_json)


def _exit_code(run: Run, interrupts: Interrupts) -> int:
    if interrupts.timed_out and run.phase is not Phase.ENDED:
        return EXIT_TIMED_OUT
    return run.exit_code(interrupted=interrupts.interrupted)
