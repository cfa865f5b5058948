"""Serving: drive the runs and batches of the ledger that have no launcher, on this computer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from vastrun.launcher.batch.serve_driver import Caretaker, ServingServices
from vastrun.launcher.batch.shared import NoteScreen, RunScreen, SharedRequests
from vastrun.launcher.core import Run
from vastrun.launcher.core.errors import VastrunError
from vastrun.launcher.decisions.schedule import PointState
from vastrun.launcher.ui.interrupts import Interrupts
from vastrun.launcher.wiring import Wiring


def serve(wiring: Wiring, interrupts: Interrupts) -> None:
    """Drive runs and batches that have no launcher, until an interrupt. Raises StorageError at its start."""
    screen = wiring.plain_screen()

    def drive_run(run: Run, requests: SharedRequests) -> Run:
        with closing(wiring.notifier(screen.note)) as notifier:
            attempts = wiring.attempts_of_many(
                requests, RunScreen(), lambda: server.runs_at_once, notifier=notifier
            )
            return attempts.resume(run, None)

    def drive_batch(name: str, requests: SharedRequests) -> Sequence[PointState]:
        return wiring.drive_batch(name, requests, NoteScreen(screen.note))

    with wiring.workers() as workers:
        server = Caretaker(
            ServingServices(
                ledger=wiring.ledger(),
                is_reachable=lambda provider, computer: _is_reachable(wiring, provider, computer),
                drive_run=drive_run,
                drive_batch=drive_batch,
                requests=interrupts.current,
                shared=SharedRequests(wiring.now, wiring.bell()),
                workers=workers,
                sleep=interrupts.sleep,
                now=wiring.now,
                note=screen.note,
            )
        )
        server.serve()


def _is_reachable(wiring: Wiring, provider: str, computer: str) -> bool:
    """Return whether this computer can reach the provider's machines that another computer rented."""
    if computer == wiring.computer():
        return True
    try:
        return wiring.market_of_many(provider).shared
    except VastrunError:  # this computer has no key for it
        return False
