"""Services of a batch's driver: screen, ledger, clock and threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from vastrun.launcher.batch.shared import RunScreen, SharedRequests, WakeSignal
from vastrun.launcher.commands.attempts import Attempts
from vastrun.launcher.core import UserRequest
from vastrun.launcher.core.batch import Batch
from vastrun.launcher.decisions.schedule import BatchProgress, PointState
from vastrun.launcher.ports import Ledger, Notifier, RunThreads


class BatchScreen(Protocol):
    """Screen of a batch."""

    def ended(self, state: PointState, batch: Batch) -> None:
        """Show how a point ended."""
        ...

    def progress(self, progress: BatchProgress, batch: Batch) -> None:
        """Show how the batch stands."""
        ...

    def note(self, text: str) -> None:
        """Show a line."""
        ...


@dataclass(frozen=True, kw_only=True)
class BatchServices:
    """Dependencies of a batch's driver."""

    ledger: Ledger
    attempts: Callable[[SharedRequests, RunScreen], Attempts]
    """Drives one run, with its own adapters."""
    requests: Callable[[], UserRequest]
    """Returns the request of the user at this terminal."""
    workers: RunThreads
    wake_signal: WakeSignal
    """Wakes waiting runs when the user makes a request."""
    sleep: Callable[[float], None]
    now: Callable[[], float]
    new_id: Callable[[], str]
    who: str
    screen: BatchScreen
    computer: str = ""
    """This computer's name within a team; empty: the ledger is this computer's own."""
    prunes: bool = True
    """The batch's early stop is followed."""
    notifier: Notifier | None = None
    """Sends notifications; None: only the screen shows them."""
