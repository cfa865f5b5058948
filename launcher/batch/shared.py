"""Services of a batch's driver, and what its runs share: clock, user requests, screens."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from vastrun.launcher.core import Event, Progress, Run, UserRequest
from vastrun.launcher.ports import Ledger, RunThreads

if TYPE_CHECKING:  # `status` does not need what drives a run
    from vastrun.launcher.batch.schedule import PointState
    from vastrun.launcher.commands.attempts import Attempts
    from vastrun.launcher.core.batch import Batch, BatchProgress
    from vastrun.launcher.notifications import Sender


class WakeSignal(Protocol):
    """Wakes all waiting threads."""

    def wait(self, seconds: float) -> None:
        """Return after `seconds`, or when it rings."""

    def wake(self) -> None:
        """Wake all waiting threads."""


class ThreadWakeSignal:
    """The WakeSignal of real threads."""

    def __init__(self) -> None:
        self._condition = threading.Condition()

    def wait(self, seconds: float) -> None:
        """Return after `seconds`, or when it rings."""
        with self._condition:
            self._condition.wait(max(0.0, seconds))

    def wake(self) -> None:
        """Wake all waiting threads."""
        with self._condition:
            self._condition.notify_all()


class SharedRequests:
    """The UserRequests and the Clock port of all runs of a batch: a request wakes all that wait."""

    def __init__(self, now: Callable[[], float], wake_signal: WakeSignal) -> None:
        self._now, self._wake_signal = now, wake_signal
        self._request = UserRequest.NONE

    def current(self) -> UserRequest:
        """Return the strongest request so far."""
        return self._request

    def ask(self, request: UserRequest) -> None:
        """Ask all runs for this. A weaker request than before changes nothing."""
        if request.strength > self._request.strength:
            self._request = request
            self._wake_signal.wake()

    def now(self) -> float:
        """Return epoch seconds."""
        return self._now()

    def sleep(self, seconds: float) -> None:
        """Return after `seconds`, or at once when the user asks for something meanwhile."""
        self._wake_signal.wait(seconds)


class RunScreen:
    """The Screen port of one run among many: its log goes to its folder only."""

    def report(self, event: Event) -> None:
        """Leave a step of the run to its diary."""

    def log(self, text: str) -> None:
        """Leave the training's log to the run's folder."""

    def progress(self, run: Run, progress: Progress, *, usd: float) -> None:
        """Leave how far the run is to its row."""


@dataclass
class NoteScreen:
    """The screen of a batch among others: its notes are shown, the rest is in the ledger."""

    note: Callable[[str], None]

    def ended(self, state: PointState, batch: Batch) -> None:
        """Leave how a point ended to the ledger."""

    def progress(self, progress: BatchProgress, batch: Batch) -> None:
        """Leave how the batch stands to the ledger."""


class BatchScreen(Protocol):
    """Screen of a batch."""

    def ended(self, state: PointState, batch: Batch) -> None:
        """Show how a point ended."""

    def progress(self, progress: BatchProgress, batch: Batch) -> None:
        """Show how the batch stands."""

    def note(self, text: str) -> None:
        """Show a line."""


@dataclass(frozen=True, kw_only=True)
class BatchServices:
    """Dependencies of a batch's driver."""

    ledger: Ledger
    attempts: Callable[[SharedRequests, RunScreen, Callable[[], int]], Attempts]
    """Makes what drives one run, with its own adapters; the last argument counts the runs of this driver."""
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
    notifier: Sender | None = None
    """Sends notifications; None: only the screen shows them."""
    settle: Callable[[], None] = lambda: None
    """Replaces counted costs by those of bills that are due."""
