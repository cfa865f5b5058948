"""StopRequest: somebody wants the training to save and leave. Standard library only."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_AT_REQUEST = "stopped"
STOPPED_BY: Mapping[str, str] = {
    _AT_REQUEST: "stopped at your request",
    "pruned": "stopped by its batch",
    "time_limit": "stopped at the time limit",
    "money_limit": "stopped at the money limit",
    "slow": "stopped to continue on a faster machine",
    "preempted": "stopped because the machine is taken back",
}


def _by_signal() -> str:
    """What SIGTERM means where this box is: with some providers, that they take the machine back."""
    meant = os.environ.get("VASTRUN_TERM", "")
    return meant if meant in STOPPED_BY else _AT_REQUEST


def stopped_by(cause: str | None) -> str:
    """Say the cause in words; of one that is not known, the first."""
    return STOPPED_BY.get(cause or "", STOPPED_BY[_AT_REQUEST])


@dataclass(kw_only=True)
class StopRequest:
    """Comes as a file, as SIGTERM or SIGINT to the supervisor, or from the supervisor of another node."""

    path: Path
    heard: str | None = None
    """The cause that another node was told."""
    _signalled_at: float | None = None

    @classmethod
    def listen(cls, path: Path) -> StopRequest:
        """Note signals that ask to stop from here on."""
        request = cls(path=path)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, request._note)
        return request

    @property
    def cause(self) -> str | None:
        """Why: what the file says, `stopped` when it says nothing known; None: nobody asked."""
        try:
            said = self.path.read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return self.heard if self._signalled_at is None else _by_signal()
        return said if said in STOPPED_BY else _AT_REQUEST

    @property
    def waited_s(self) -> float:
        """Seconds since it came, where that is known; else 0."""
        try:
            asked_at: float | None = self.path.stat().st_mtime
        except OSError:
            asked_at = self._signalled_at
        return 0.0 if asked_at is None else max(0.0, time.time() - asked_at)

    def _note(self, _number: int, _frame: object) -> None:
        if self._signalled_at is None:
            self._signalled_at = time.time()
