"""`python -m vastrun.launcher.api.driver_process run|batch NAME`: drive it for the program that started it.

Prints nothing but errors. Exit code 0 if nothing is left to drive; else the error's exit code, with the error
in the last line of stderr, serialized for that program. SIGTERM stops the run or batch, SIGHUP detaches, as
for any launcher.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vastrun.launcher.api.drivers import Target, error_line, take_secrets
from vastrun.launcher.api.session import silent
from vastrun.launcher.app import App
from vastrun.launcher.batch.driver import BatchDriver
from vastrun.launcher.batch.results import states_in
from vastrun.launcher.batch.shared import NoteScreen
from vastrun.launcher.core import Phase
from vastrun.launcher.core.errors import VastrunError
from vastrun.launcher.run_services import attempts_for, batch_services, settle_bills
from vastrun.launcher.ui.interrupts import Interrupts

if TYPE_CHECKING:
    from vastrun.launcher.batch.shared import BatchScreen


def main(arguments: Sequence[str]) -> int:
    """Drive the run or batch in the arguments; return the exit code."""
    kind, name = arguments
    app = silent(App(os.environ))
    app.accept_secrets(take_secrets())
    interrupts = app.interrupts()
    try:
        with interrupts.listening():
            drive(app, interrupts, Target("batch" if kind == "batch" else "run", name))
    except VastrunError as error:
        print(error_line(error), file=sys.stderr)
        return error.exit_code
    return 0


def drive(app: App, interrupts: Interrupts, target: Target, screen: BatchScreen | None = None) -> bool:
    """Drive a run or a batch; return whether it is closed.

    `screen`: the screen of a batch. Raises as `Attempts.resume` and `BatchDriver.drive`.
    """
    if target.kind == "batch":
        screen = screen or NoteScreen(lambda _: None)
        with batch_services(app, target.name, interrupts, screen) as services:
            BatchDriver(target.name, services).drive()
        return not any(state.is_open for state in states_in(app.driver_ledger(), target.name))
    run = app.driver_ledger().get(target.name)
    with attempts_for(app, interrupts, began=run.created_at) as attempts:
        last = attempts.resume(run, None)
        settle_bills(app, run.provider)
    return last.phase is Phase.ENDED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
