"""Serving: drive the runs and batches of the ledger that have no launcher, on this computer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from vastrun.launcher.app_context import AppContext
from vastrun.launcher.batch.serve_driver import ServeDriver, ServeServices
from vastrun.launcher.batch.shared import NoteScreen, RunScreen, SharedRequests
from vastrun.launcher.core import Run
from vastrun.launcher.core.errors import VastrunError
from vastrun.launcher.decisions.schedule import PointState
from vastrun.launcher.run_services import attempts_of_many, drive_batch
from vastrun.launcher.ui.interrupts import Interrupts


def serve(app: AppContext, interrupts: Interrupts) -> None:
    """Drive runs and batches that have no launcher, until an interrupt. Raises StorageError at its start."""
    screen = app.plain_screen()

    def drive_run(run: Run, requests: SharedRequests) -> Run:
        with closing(app.make.notifier(screen.note)) as notifier:
            attempts = attempts_of_many(
                app, requests, RunScreen(), lambda: server.runs_at_once, notifier=notifier
            )
            return attempts.resume(run, None)

    def drive_one(name: str, requests: SharedRequests) -> Sequence[PointState]:
        return drive_batch(app, name, requests, NoteScreen(screen.note))

    with app.make.workers() as workers:
        server = ServeDriver(
            ServeServices(
                ledger=app.ledger(),
                is_reachable=lambda provider, computer: _is_reachable(app, provider, computer),
                drive_run=drive_run,
                drive_batch=drive_one,
                requests=interrupts.current,
                shared=SharedRequests(app.now, app.make.wake_signal()),
                workers=workers,
                sleep=interrupts.sleep,
                now=app.now,
                note=screen.note,
            )
        )
        server.serve()


def _is_reachable(app: AppContext, provider: str, computer: str) -> bool:
    """Return whether this computer can reach the provider's machines that another computer rented."""
    if computer == app.user.computer():
        return True
    try:
        return app.shared_provider(provider).shared
    except VastrunError:  # this computer has no key for it
        return False
