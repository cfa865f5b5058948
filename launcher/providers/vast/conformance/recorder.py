"""ApiRecorder: the answers of Vast's API during a run, and what was measured besides. No file has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from vastrun.launcher.gate.text import one_line
from vastrun.launcher.providers.vast.calls import VastCall
from vastrun.launcher.providers.vast.conformance.assumption import Value
from vastrun.launcher.providers.vast.errors import Answer, NoResponseError

Once = Callable[..., object]
"""`VastApi.once`: makes calls in one turn, each once."""
_MAX_EXCHANGES, _MAX_BYTES, _MAX_WORD = 2000, 8 << 20, 40


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
    date: str = ""
    """Its Date header."""
    sent: Any = field(default=None, repr=False)
    """The JSON of the request."""

    @property
    def fields(self) -> Mapping[str, Any]:
        """The answer as an object; empty where it is none."""
        return self.content if isinstance(self.content, dict) else {}

    @property
    def word(self) -> str:
        """The answer in a word or two: `404 no_such_instance`, `200 success`, `429 text`."""
        if not self.status:
            return "no answer"
        return f"{self.status} {self._summary() if self.is_json else 'text'}"

    def _summary(self) -> str:
        if not isinstance(self.content, dict):
            return type_of(self.content)
        error = self.content.get("error")
        if isinstance(error, str) and error:
            # Vast names this one in `msg` only, now and then.
            is_gone = "no_such_ask" in str(self.content.get("msg"))[:1000]
            return "no_such_ask" if is_gone else one_line(error)[:_MAX_WORD]
        if self.content.get("instances", self) is None:
            return "instances=null"
        success = self.content.get("success")
        return "success" if success is True else "refused" if success is False else "object"


@dataclass
class ApiRecorder:
    """All that one conformance run saw. `measured` holds the results of its probes."""

    exchanges: list[Exchange] = field(default_factory=list)
    measured: dict[str, Value] = field(default_factory=dict)
    instance_id: str = ""
    """The machine that was rented last."""
    rented: dict[str, str] = field(default_factory=dict)
    """Purpose of each machine, by its id: `bid` or `run`."""
    trials: dict[str, Value] = field(default_factory=dict)
    """Results of the trials before the run's order, by assumption."""
    rented_at: float | None = None
    """Epoch seconds at which Vast had agreed to the last rental."""

    def record(self, exchange: Exchange) -> None:
        """Keep the answer. A service that never ends a run cannot fill this computer's memory."""
        if len(self.exchanges) < _MAX_EXCHANGES:
            self.exchanges.append(exchange)

    def begin(self, instance_id: str, at: float | None) -> None:
        """Another machine was rented: what was measured of the one before it does not count."""
        self.instance_id, self.rented_at = instance_id, at
        self.measured.clear()
        self.rented[instance_id] = "run"

    def calls(self, method: str, path: str) -> Iterator[Exchange]:
        """Yield the exchanges of that call, oldest first."""
        return (one for one in self.exchanges if one.method == method and one.path == path)

    def ask(self, once: Once, *calls: VastCall, pause_s: float = 0.0) -> list[Exchange]:
        """Make calls in one turn, each once, and return what was answered."""
        before = len(self.exchanges)
        once(*calls, pause_s=pause_s)
        return self.exchanges[before:]

    def note(self, once: Once, name: str, call: VastCall) -> str:
        """Note what one call is answered; nothing where there was no answer, or it came too early."""
        heard = self.ask(once, call)
        if not heard or heard[-1].status in (0, 429):
            return ""
        self.measured[name] = heard[-1].word
        return heard[-1].word


def exchange_of(call: VastCall, answer: Answer | None, *, asked_at: float, answered_at: float) -> Exchange:
    """Return the exchange of a call; `answer` is None where none came."""
    path = call.path.partition("?")[0].rstrip("/")
    about: dict[str, Any] = {"method": call.method, "path": path, "sent": call.body, **_answer(answer)}
    return Exchange(asked_at=asked_at, answered_at=answered_at, **about)


def _answer(answer: Answer | None) -> dict[str, Any]:
    """Return the fields of an exchange that its answer has."""
    if answer is None:
        return {"status": 0}
    found: dict[str, Any] = {}
    if len(answer.text) <= _MAX_BYTES:
        with suppress(NoResponseError):
            found = {"content": answer.json(), "is_json": True}
    return {**found, "status": answer.status, "date": str(answer.headers.get("Date", ""))[:100]}


def type_of(value: Any) -> str:
    """Name the type of a JSON value as the table of assumptions does."""
    if value is None:
        return "null"
    names = {bool: "bool", int: "number", float: "number", str: "text", list: "list", dict: "object"}
    return names.get(type(value), "other")
