"""`python -m vastrun.launcher.api.driver_process run|batch NAME [--background]`: drive it without a terminal.

Without the option it works for the program that started it: exit code 0 if nothing is left to drive; else the
error's exit code, with the error in the last line of stderr, serialized for that program. SIGTERM stops the
run or batch, SIGHUP detaches, as for any launcher.

In the background no signal stops the run: SIGTERM, as at a shutdown of the computer, ends only this driver,
and the next `vastrun` command starts another one. A machine that could not be destroyed and a file that could
not be written are retried forever.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from vastrun.launcher.api.drivers import BACKGROUND, DriverFolder, Target, error_line, take_secrets
from vastrun.launcher.api.runs import find_open_target
from vastrun.launcher.api.session import without_terminal
from vastrun.launcher.app import App
from vastrun.launcher.batch.driver import BatchDriver
from vastrun.launcher.batch.results import states_in
from vastrun.launcher.batch.shared import NoteScreen
from vastrun.launcher.core import Phase, UserRequest
from vastrun.launcher.core.errors import HeldError, StorageError, VastrunError
from vastrun.launcher.run_services import attempts_for, batch_services, settle_bills
from vastrun.launcher.ui.interrupts import Interrupts
from vastrun.launcher.ui.screen import StreamScreen

RETRY_INTERVAL_S = 60.0
"""Seconds between two retries."""
MAX_LOG_BYTES = 1 << 20
"""Size at which the log is renamed to `.log.1` and a new one begins."""
_STDOUT, _STDERR = 1, 2


class BoundedLog:
    """Output stream of a screen: timestamped lines in the log behind stdout and stderr, of bounded size."""

    def __init__(self, path: Path, max_bytes: int = MAX_LOG_BYTES) -> None:
        self._path, self._max_bytes = path, max_bytes

    def write(self, text: str) -> object:
        """Write whole lines; lines that the disk has no room for are lost."""
        at = time.strftime("%Y-%m-%d %H:%M:%S")
        lines = "".join(f"{at}  {line}\n" for line in text.splitlines() if line.strip())
        with suppress(OSError):
            os.write(_STDERR, lines.encode("utf-8", "replace"))
            if os.fstat(_STDERR).st_size > self._max_bytes:
                self._path.replace(f"{self._path}.1")
                new = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                os.dup2(new, _STDOUT)
                os.dup2(new, _STDERR)
                os.close(new)
        return len(text)

    def flush(self) -> None:
        """Do nothing: writes are not buffered."""

    def fileno(self) -> int:
        """Return the descriptor of the log."""
        return _STDERR


class EventScreen(StreamScreen):
    """A screen that shows the events of a run without its log, which is in the outputs."""

    def log(self, text: str) -> None:
        """Show nothing."""


def main(arguments: Sequence[str]) -> int:
    """Drive the run or batch in the arguments; return the exit code."""
    kind, name, *options = arguments
    target, app = Target("batch" if kind == "batch" else "run", name), App(os.environ)
    app.commands().take_over(take_secrets())
    interrupts = app.interrupts(views=BACKGROUND in options)
    if BACKGROUND in options:
        assert app.drivers is not None
        folder = DriverFolder(app.drivers)
        log = BoundedLog(folder.log(target))
        app = without_terminal(app, log, EventScreen)
        try:
            with folder.claim(target), interrupts.listening():
                _drive(app, interrupts, folder, target)
        except HeldError as error:
            log.write(str(error))
        except VastrunError as error:
            app.plain_screen().note(f"giving up: {error}")
            return error.exit_code
        return 0
    try:
        with interrupts.listening():
            drive(without_terminal(app), interrupts, target)
    except VastrunError as error:
        print(error_line(error), file=sys.stderr)
        return error.exit_code
    return 0


def drive(
    app: App, interrupts: Interrupts, target: Target, note: Callable[[str], None] = lambda _: None
) -> bool:
    """Drive a run or a batch; return whether it is closed.

    `note`: shows a line about a batch. Raises as `Attempts.resume` and `BatchDriver.drive`.
    """
    if target.kind == "batch":
        with batch_services(app, target.name, interrupts, NoteScreen(note)) as services:
            BatchDriver(target.name, services).drive()
        return not any(state.is_open for state in states_in(app.driver_ledger(), target.name))
    run = app.driver_ledger().get(target.name)
    with attempts_for(app, interrupts, began=run.created_at) as attempts:
        last = attempts.resume(run, None)
        settle_bills(app, run.provider)
    return last.phase is Phase.ENDED


def _drive(app: App, interrupts: Interrupts, folder: DriverFolder, target: Target) -> None:
    """Drive the target until it is closed or a signal arrives. Raises VastrunError."""
    note, ledger = app.plain_screen().note, app.driver_ledger()
    note(f"process {os.getpid()} drives {target.name}")
    while interrupts.current() is UserRequest.NONE:
        has_ended = True
        try:
            if (newest := find_open_target(ledger, target, app.now())) is not None:
                has_ended = drive(app, interrupts, newest, note)
        except StorageError as error:
            note(f"{error}; trying again in {RETRY_INTERVAL_S:.0f} s")
            has_ended = False
        if interrupts.current() is not UserRequest.NONE:
            break
        if has_ended:
            folder.remove(target)
            note(f"{target.name} has ended; nothing is left to do")
            return
        if folder.find(target) is None:
            return  # the state folder was removed
        interrupts.sleep(RETRY_INTERVAL_S)
    note(f"leaving {target.name}: the next vastrun command on this computer starts another driver")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
