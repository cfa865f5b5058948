"""The limiter: every process of a user keeps Vast's spacing between calls, together."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from launcher.errors import StorageError
from launcher.ports import Clock


@dataclass(frozen=True)
class Limit:
    """At most `calls` in any `seconds`."""

    calls: int
    seconds: float


LIMITS: Mapping[str, Limit] = {
    "search": Limit(10, 60.0),
    "create": Limit(1, 4.5),
    "list": Limit(1, 1.0),
    "show": Limit(1, 2.0),
    "destroy": Limit(1, 3.0),
    "account": Limit(1, 1.0),
    "attach key": Limit(1, 1.0),
    "logs": Limit(1, 1.0),
    "charges": Limit(1, 1.0),
}
"""As Vast documents them for each endpoint; it names none for the account and the logs."""

_MARGIN_S = 0.05
_FARTHEST_S = 300.0
"""A slot further ahead than this was noted before the clock was set back."""


class Limiter:
    """Hands out slots. A process that dies in its slot costs the others nothing but that slot."""

    def __init__(self, path: Path, clock: Clock, limits: Mapping[str, Limit] = LIMITS) -> None:
        self._path = path
        self._clock = clock
        self._limits = limits

    def wait(self, endpoint: str) -> None:
        """Returns when this process may call the endpoint once. Raises StorageError."""
        slot = self._book(endpoint)
        while (left := slot - self._clock.now()) > 0:
            self._clock.sleep(left)

    def hold_off(self, endpoint: str, seconds: float) -> None:
        """Nobody calls the endpoint for `seconds`: Vast said that it was too often."""
        limit = self._limits[endpoint]
        with self._slots() as slots:
            # A full window that ends then: the next slot is the first free one after it.
            slots[endpoint] = [self._clock.now() + seconds - limit.seconds] * limit.calls

    def _book(self, endpoint: str) -> float:
        limit, now = self._limits[endpoint], self._clock.now()
        with self._slots() as slots:
            booked = [at for at in slots.get(endpoint, []) if at < now + _FARTHEST_S][-limit.calls :]
            slot = now
            if len(booked) == limit.calls:
                slot = max(now, booked[0] + limit.seconds + _MARGIN_S)
            slots[endpoint] = [*booked, slot][-limit.calls :]
        return slot

    @contextmanager
    def _slots(self) -> Iterator[dict[str, list[float]]]:
        """The booked slots of each endpoint, locked, and written back."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._path.open("a+", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                slots = _read(file)
                yield slots
                file.seek(0)
                file.truncate()
                json.dump(slots, file)
        except OSError as error:
            hint = "free some space, or XDG_STATE_HOME=/another/folder vastrun …"
            raise StorageError(f"cannot write {self._path}: {error.strerror or error}", hint=hint) from error


def _read(file: IO[str]) -> dict[str, list[float]]:
    """The slots in the file. One that a crash left half-written books nothing."""
    file.seek(0)
    try:
        slots = json.load(file)
        return {str(name): [float(at) for at in times] for name, times in slots.items()}
    except (ValueError, TypeError, AttributeError):
        return {}
