"""Tape: the answers of Vast's API during a run, and what was measured besides. It is never written down."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

Value = str | float | Mapping[str, str]
"""What was seen of one assumption: a word, a number, or a word for each of several fields."""
_MOST_EXCHANGES = 2000
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One request and its answer. `path` has no query, and nothing of the request's headers is kept."""

    method: str
    path: str
    asked_at: float
    """Epoch seconds."""
    answered_at: float
    status: int
    """0: there was no answer."""
    content: Any = None
    """The JSON of the answer; None where it has none."""
    is_json: bool = False
    retry_after: bool = False
    """The answer says in a header when to ask again."""
    limits: tuple[str, ...] = ()
    """Names of its headers that tell of a limit, in lower case."""
    text: str = ""
    """How an answer that is no JSON begins."""
    date: str = ""
    """Its Date header."""
    sent: Any = field(default=None, repr=False)
    """The JSON of the request."""

    @property
    def seconds(self) -> float:
        """How long the answer took."""
        return self.answered_at - self.asked_at

    @property
    def fields(self) -> Mapping[str, Any]:
        """The answer as an object; empty where it is none."""
        return self.content if isinstance(self.content, dict) else {}


@dataclass
class Tape:
    """What one conformance run saw. `measured` holds what was looked at on purpose."""

    exchanges: list[Exchange] = field(default_factory=list)
    measured: dict[str, Value] = field(default_factory=dict)
    instance_id: str = ""
    """The machine that was rented last."""
    stopped_s: float = 0.0
    """For how long it did not run, because it was stopped on purpose."""
    rented_at: float | None = None
    """When Vast had agreed to the last rental."""

    def record(self, exchange: Exchange) -> None:
        """Keep the answer. A service that never ends a run cannot fill this computer's memory."""
        if len(self.exchanges) < _MOST_EXCHANGES:
            self.exchanges.append(exchange)

    def begin(self, instance_id: str, at: float) -> None:
        """Another machine was rented: what was measured of the one before it does not count."""
        self.instance_id, self.rented_at = instance_id, at
        self.stopped_s = 0.0
        self.measured.clear()

    def calls(self, method: str, path: str) -> Iterator[Exchange]:
        """Yield the exchanges of that call, oldest first."""
        return (one for one in self.exchanges if one.method == method and one.path == path)

    def first(self, method: str, path: str, that: Callable[[Exchange], bool] = bool) -> Exchange | None:
        """Return the first exchange of that call of which `that` holds."""
        return next((one for one in self.calls(method, path) if that(one)), None)
