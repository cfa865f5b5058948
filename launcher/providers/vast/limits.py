"""The limiter: all processes of a user, or of a team, queue together for their calls, at Vast's spacing.

Vast limits each key, and each address besides. One queue for all keys of this computer holds both; a team has
one for each key, wherever it is used.
"""

from __future__ import annotations

import fcntl
import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

from vastrun.launcher.core.errors import StorageError
from vastrun.launcher.ports import RateLimitStore

_T = TypeVar("_T")


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
    "label": Limit(1, 1.0),
    "logs": Limit(1, 1.0),
    "charges": Limit(1, 1.0),
    "overlay": Limit(1, 1.0),
    "volumes": Limit(1, 5.5),
}
"""As Vast documents them for each endpoint; it names none for the account, the logs and overlays."""

_MARGIN_S = 0.05
_SLOWER, _SLOWEST = 2.0, 8.0
"""What a refusal makes of the distance between two calls, and how far it grows."""
_RECOVERY = 0.9
"""What each call that follows leaves of the delay."""
_EVEN = 1.05


@dataclass
class _Queue:
    """Of one endpoint: who calls when. Times by the limiter's own clock."""

    booked: list[tuple[float, str]] = field(default_factory=list)
    """Times and tickets: the last calls and all that wait, the earliest first."""
    closed_until: float = 0.0
    pace: float = 1.0
    """How many times as far apart as documented calls are kept, since Vast refused one."""

    def book(self, limit: Limit, now: float) -> str:
        """Take a ticket for the next free time."""
        past, waiting = self._split(now)
        self.booked = [*past[-limit.calls :], *waiting]
        self.pace = 1 + (self.pace - 1) * _RECOVERY
        return self._append(secrets.token_hex(8), limit, now)

    def close(self, limit: Limit, now: float, seconds: float) -> str:
        """Keep everybody from calling for so long, and less often after that.

        The ticket is the first one then.
        """
        self.pace = min(_SLOWEST, self.pace * _SLOWER)
        self.closed_until = max(self.closed_until, now + seconds)
        return self._put(secrets.token_hex(8), limit, now)

    def left_s(self, ticket: str, limit: Limit, now: float) -> float:
        """Return how long the ticket has to wait.

        0: its turn is now, and the others keep their distance from it.
        """
        at = next((at for at, one in self.booked if one == ticket), now)
        if at <= now:
            self._put(ticket, limit, now)
            at = next(at for at, one in self.booked if one == ticket)
        return max(0.0, at - now)

    def _put(self, ticket: str, limit: Limit, now: float) -> str:
        """The ticket is the first that is not over; those after it come later where they must."""
        others = [call for call in self.booked if call[1] != ticket]
        self.booked = [call for call in others if call[0] <= now]
        self._append(ticket, limit, now)
        for at, other in others[len(self.booked) - 1 :]:
            self._append(other, limit, at)
        return ticket

    def _append(self, ticket: str, limit: Limit, earliest: float) -> str:
        times = [at for at, _ in self.booked]
        at = max(earliest, self.closed_until, *times[-1:])
        if len(times) >= limit.calls:
            at = max(at, times[-limit.calls] + limit.seconds * self.pace + _MARGIN_S)
        if self.pace > _EVEN and times:
            # Calls that came all at once were too many: one after the other, evenly.
            at = max(at, times[-1] + limit.seconds / limit.calls * self.pace)
        self.booked.append((at, ticket))
        return ticket

    def _split(self, now: float) -> tuple[list[tuple[float, str]], list[tuple[float, str]]]:
        past = [call for call in self.booked if call[0] <= now]
        return past, self.booked[len(past) :]


class Limiter:
    """One queue for each endpoint: who comes first calls first, and a refusal makes all of them slower.

    A process that dies while it waits costs the others nothing but its turn.
    """

    def __init__(
        self, book: RateLimitStore, sleep: Callable[[float], None], limits: Mapping[str, Limit] = LIMITS
    ) -> None:
        """`book`: of all who must keep the pace together."""
        self._book, self._sleep, self._limits = book, sleep, limits

    @contextmanager
    def turn(self, endpoint: str, refused_s: float | None = None) -> Iterator[None]:
        """Wait until this process may call the endpoint once. Raises StorageError.

        `refused_s`: Vast has just refused this call as one too many. Nobody calls for so long, then this one
        first. The distance to the next call counts from the end of the turn: when within it Vast heard of
        it, nobody knows.
        """
        limit = self._limits[endpoint]

        def take(queue: _Queue, now: float) -> str:
            return queue.book(limit, now) if refused_s is None else queue.close(limit, now, refused_s)

        ticket = self._change(endpoint, take)
        while left_s := self._left_s(endpoint, ticket):
            self._sleep(left_s)
        try:
            yield
        # Also after an error: Vast has counted the call whatever came of it.
        finally:
            self._left_s(endpoint, ticket)

    def _left_s(self, endpoint: str, ticket: str) -> float:
        return self._change(endpoint, lambda queue, now: queue.left_s(ticket, self._limits[endpoint], now))

    def _change(self, endpoint: str, work: Callable[[_Queue, float], _T]) -> _T:
        """What `work` makes of the endpoint's queue, which is written back."""

        def change(text: str, now: float) -> tuple[str, _T]:
            queue = _read(text, now)
            done = work(queue, now)
            return json.dumps({"at": now, **asdict(queue)}), done

        return self._book.change(endpoint, change)


class FileRateLimitStore:
    """The RateLimitStore port for one user of one computer: a file."""

    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        """`now`: a clock that all processes of this computer share, and that nobody sets."""
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
            hint = "free some space, or XDG_STATE_HOME=/another/folder vastrun …"
            raise StorageError(f"cannot write {self._path}: {error.strerror or error}", hint=hint) from error


def _texts(file: IO[str]) -> dict[str, str]:
    """By endpoint. A file that a crash left half-written holds nobody up."""
    file.seek(0)
    try:
        return {str(name): str(text) for name, text in json.load(file).items()}
    except (ValueError, AttributeError):
        return {}


def _read(text: str, now: float) -> _Queue:
    """The queue. One of before a restart of the computer, or that nobody understands, is begun anew."""
    try:
        values = json.loads(text)
        return _Queue() if values["at"] > now else _queue_of(values)
    except (ValueError, TypeError, AttributeError, KeyError):
        return _Queue()


def _queue_of(values: Mapping[str, Any]) -> _Queue:
    return _Queue(
        booked=sorted((float(at), str(ticket)) for at, ticket in values["booked"]),
        closed_until=float(values["closed_until"]),
        pace=min(_SLOWEST, max(1.0, float(values["pace"]))),
    )
