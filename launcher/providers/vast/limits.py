"""Rate limiter: all processes of a user, or of a team, share one queue for their calls to Vast.

Vast limits each key, and also each address. One queue for all keys of this computer satisfies both; a team
has one queue for each key on all computers.
"""

from __future__ import annotations

import fcntl
import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, TypeVar

from vastrun.launcher.core.errors import StorageError
from vastrun.launcher.ports import RateLimitStore
from vastrun.launcher.providers.vast.calls import ROUTES, Limit

_T = TypeVar("_T")


LIMITS: Mapping[str, Limit] = {name: route.limit for name, route in ROUTES.items()}
"""Rate limit of each route."""
_SLOWDOWN, _SLOWDOWN_LIMIT = 2.0, 8.0
"""Factor on the interval between calls after a rejection (HTTP 429), and its maximum."""


@dataclass
class _Queue:
    """Schedule of one endpoint's calls, by the limiter's clock."""

    booked: list[tuple[float, str]] = field(default_factory=list)
    """Times and tickets of the last calls and of all waiting ones, in order."""
    closed_until: float = 0.0
    pace: float = 1.0
    """Factor on the documented interval; above 1 after a rejection."""

    def book(self, limit: Limit, now: float) -> str:
        """Return a ticket for the next free time."""
        # Only as many past calls as the limit counts: the store is rewritten at each call of each process.
        past = sum(at <= now for at, _ in self.booked)
        self.booked = self.booked[max(0, past - limit.calls) :]
        self.pace = 1 + (self.pace - 1) * 0.9
        return self._append(secrets.token_hex(8), limit, now)

    def close(self, limit: Limit, now: float, seconds: float) -> str:
        """Block all calls for `seconds`, and slow down later ones.

        Returns the ticket of the first call after that.
        """
        # The documented interval was not enough: other programs with this key, unknown here, count, too.
        self.pace = min(_SLOWDOWN_LIMIT, self.pace * _SLOWDOWN)
        self.closed_until = max(self.closed_until, now + seconds)
        return self._reserve_first(secrets.token_hex(8), limit, now)

    def left_s(self, ticket: str, limit: Limit, now: float) -> float:
        """Return the seconds that the ticket has to wait.

        0: the call may start now, and the interval to the next one counts from now.
        """
        at = next((at for at, one in self.booked if one == ticket), now)
        if at <= now:
            self._reserve_first(ticket, limit, now)
            at = next(at for at, one in self.booked if one == ticket)
        return max(0.0, at - now)

    def _reserve_first(self, ticket: str, limit: Limit, now: float) -> str:
        """Schedule the ticket as the next call; postpone later ones as needed."""
        waiting = [call for call in self.booked if call[1] != ticket]
        self.booked = [call for call in waiting if call[0] <= now]
        self._append(ticket, limit, now)
        for at, other in waiting[len(self.booked) - 1 :]:
            self._append(other, limit, at)
        return ticket

    def _append(self, ticket: str, limit: Limit, earliest: float) -> str:
        times = [at for at, _ in self.booked]
        at = max(earliest, self.closed_until, *times[-1:])
        if len(times) >= limit.calls:
            at = max(at, times[-limit.calls] + limit.seconds * self.pace + 0.05)
        if self.pace > 1.05 and times:
            # A burst was rejected: space calls evenly.
            at = max(at, times[-1] + limit.seconds / limit.calls * self.pace)
        self.booked.append((at, ticket))
        return ticket


class Limiter:
    """One queue for each endpoint: first come, first served; a rejection slows down all calls.

    A process that dies while it waits costs the others one turn.
    """

    def __init__(
        self,
        book: RateLimitStore,
        sleep: Callable[[float], None],
        limits: Mapping[str, Limit] = LIMITS,
        report_wait: Callable[[str, float], None] = lambda _endpoint, _seconds: None,
    ) -> None:
        """`book`: store shared by all processes that share the limits.

        `report_wait`: receives the endpoint of each call, and the seconds that it waited for its turn.
        """
        self._book, self._sleep, self._limits = book, sleep, limits
        self._report_wait = report_wait

    @contextmanager
    def turn(self, endpoint: str, back_off_s: float | None = None) -> Iterator[None]:
        """Wait until this process may call the endpoint once. Raises StorageError.

        `back_off_s`: Vast has just rejected this call (HTTP 429): block all calls for this time, then repeat
        this one first. The interval to the next call counts from the end of the turn, since the moment at
        which Vast counted the call is unknown.
        """
        limit = self._limits[endpoint]

        def take(queue: _Queue, now: float) -> str:
            return queue.book(limit, now) if back_off_s is None else queue.close(limit, now, back_off_s)

        ticket = self._change(endpoint, take)
        waited_s = 0.0
        while left_s := self._left_s(endpoint, ticket):
            self._sleep(left_s)
            waited_s += left_s
        self._report_wait(endpoint, waited_s)
        try:
            yield
        # Also after an error: Vast has counted the call.
        finally:
            self._left_s(endpoint, ticket)

    def _left_s(self, endpoint: str, ticket: str) -> float:
        return self._change(endpoint, lambda queue, now: queue.left_s(ticket, self._limits[endpoint], now))

    def _change(self, endpoint: str, work: Callable[[_Queue, float], _T]) -> _T:
        """Apply `work` to the endpoint's queue, store the queue, and return the result."""

        def change(text: str, now: float) -> tuple[str, _T]:
            queue = _read(text, now)
            done = work(queue, now)
            return json.dumps({"at": now, **asdict(queue)}), done

        return self._book.change(endpoint, change)


class FileRateLimitStore:
    """The RateLimitStore port for one user of one computer: a file."""

    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        """`now`: monotonic clock that all processes of this computer share."""
        self._path, self._now = path, now

    def change(self, endpoint: str, work: Callable[[str, float], tuple[str, _T]]) -> _T:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._path.open("a+", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                texts = _texts(file)
                # The time is read under the lock: who waited for it longest would otherwise book in the past.
                texts[endpoint], done = work(texts.get(endpoint, ""), self._now())
                file.seek(0)
                file.truncate()
                json.dump(texts, file)
                return done
        except OSError as error:
            text = f"cannot write {self._path}: {error.strerror or error}"
            raise StorageError(text, hint=f"free some space, or make {self._path.parent} writable") from error


def _texts(file: IO[str]) -> dict[str, str]:
    """Return the queues by endpoint; none for a file that a crash left incomplete."""
    file.seek(0)
    try:
        return {str(name): str(text) for name, text in json.load(file).items()}
    except (ValueError, AttributeError):
        return {}


def _read(text: str, now: float) -> _Queue:
    """Return the stored queue; a new one if it is invalid or from before a restart of the computer."""
    try:
        values = json.loads(text)
        if values["at"] > now:
            return _Queue()
        return _Queue(
            booked=sorted((float(at), str(ticket)) for at, ticket in values["booked"]),
            closed_until=float(values["closed_until"]),
            pace=min(_SLOWDOWN_LIMIT, max(1.0, float(values["pace"]))),
        )
    except (ValueError, TypeError, AttributeError, KeyError):
        return _Queue()
