"""What the runs of a batch share: the clock that all of them wait by, their user's requests, their screen."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from launcher.core import Event, Progress, Run, UserRequest


class SharedRequests:
    """The UserRequests and the Clock port of all runs of a batch: a request wakes whoever waits."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._request = UserRequest.NONE
        self._bell = threading.Condition()

    def current(self) -> UserRequest:
        """Return the strongest request so far."""
        return self._request

    def ask(self, request: UserRequest) -> None:
        """Ask all runs for this. A weaker request than before changes nothing."""
        with self._bell:
            if request.strength > self._request.strength:
                self._request = request
                self._bell.notify_all()

    def now(self) -> float:
        """Return epoch seconds."""
        return self._now()

    def sleep(self, seconds: float) -> None:
        """Return after `seconds`, or at once when the user asks for something meanwhile."""
        with self._bell:
            self._bell.wait(max(0.0, seconds))


@dataclass
class RunScreen:
    """The Screen port of one run among many: its log goes to its folder only, its progress into a table."""

    step: int = 0
    steps: int = 0
    last: str = ""
    """The newest line of its diary."""

    def event(self, event: Event) -> None:
        """Keep a step of the run."""
        self.last = event.text

    def log(self, text: str) -> None:
        """Leave the training's log to the run's folder."""

    def progress(self, run: Run, progress: Progress, *, usd: float) -> None:  # noqa: ARG002 - the port's
        """Keep how far the run is."""
        self.step, self.steps = progress.step or self.step, progress.steps or self.steps
