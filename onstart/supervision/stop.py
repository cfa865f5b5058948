"""Stop request: detects that the training should save and exit. Standard library only."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_AT_REQUEST = "stopped"
STOP_TEXTS: Mapping[str, str] = {
    _AT_REQUEST: "stopped at your request",
    "pruned": "stopped by its batch",
    "time_limit": "stopped at the time limit",
    "money_limit": "stopped at the money limit",
    "preempted": "stopped because the provider reclaims the machine",
}


def stop_text(cause: str | None) -> str:
    """Return the text of a cause; for an unknown one, the text of `stopped`."""
    return STOP_TEXTS.get(cause or "", STOP_TEXTS[_AT_REQUEST])


@dataclass(kw_only=True)
class StopRequest:
    """A request to stop: a file, SIGTERM or SIGINT to the supervisor, or a message of another node."""

    path: Path
    peer_cause: str | None = None
    """Cause of a stop request to another node."""
    _signalled_at: float | None = None

    @classmethod
    def listen(cls, path: Path) -> StopRequest:
        """Record signals that request a stop from now on."""
        request = cls(path=path)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, request._note)
        return request

    @staticmethod
    def ignore() -> None:
        """Ignore signals from now on: at the end of a process, its exit code is known.

        Python gives up its handlers while it exits, and a late signal would kill it: exit code 143.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)

    @property
    def cause(self) -> str | None:
        """Return the cause in the file, `stopped` for an unknown one; None: there is no request."""
        try:
            cause = self.path.read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            if self._signalled_at is None:
                return self.peer_cause
            # Some providers send SIGTERM before they reclaim the machine.
            cause = os.environ.get("VASTRUN_TERM", "")
        return cause if cause in STOP_TEXTS else _AT_REQUEST

    @property
    def waited_s(self) -> float:
        """Seconds since the request, where the time is known; else 0."""
        try:
            asked_at: float | None = self.path.stat().st_mtime
        except OSError:
            asked_at = self._signalled_at
        return 0.0 if asked_at is None else max(0.0, time.time() - asked_at)

    def _note(self, _number: int, _frame: object) -> None:
        if self._signalled_at is None:
            self._signalled_at = time.time()
