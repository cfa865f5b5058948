"""ApiRecorder: the answers of Vast's API during a run, and what was measured besides. No file has it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from tests.conformance import assumptions
from vastrun.contract.records import Pattern, Range, parse_json, read_as, write_atomically
from vastrun.launcher.core import Cost
from vastrun.launcher.core.errors import StorageError, UsageError
from vastrun.launcher.core.verdict import EXIT_CODE_OF, EXIT_TEARDOWN_NOT_CONFIRMED, Verdict
from vastrun.launcher.gate.caps import ExchangeBudget
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.providers.vast.calls import VastCall
from vastrun.launcher.providers.vast.errors import Answer, NoResponseError
from vastrun.launcher.providers.vast.transport import Send, VastAccount

Once = Callable[..., object]
"""`VastApi.once`: makes calls in one turn, each once."""
Connect = Callable[[VastAccount], Send]
EXIT_DEVIATES = 12
"""Exit code where the live service differs from the assumptions."""
_MAX_EXCHANGES, _MAX_WORD = 2000, 40
HEADER: Mapping[str, Any] = {"kind": "vastrun conformance", "schema_version": 1}
_MAX_BYTES = 1 << 20
_Short = Annotated[str, Pattern(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]{0,200}")]
_Number = Annotated[float, Range(-1e12, 1e12)]


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
    content: Any = ""
    """The JSON of the answer; a text where it has none."""
    date: str = ""
    """Its Date header."""
    sent: Mapping[str, Any] = field(default_factory=dict, repr=False)
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
        return f"{self.status} {self._summary()}"

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
    measured: dict[str, assumptions.Value] = field(default_factory=dict)
    instance_id: str = ""
    """The machine that was rented last."""
    rented_at: float | None = None
    """Epoch seconds at which Vast had agreed to the last rental."""

    def record(self, call: VastCall, answer: Answer | None, asked_at: float, answered_at: float) -> None:
        """Keep the answer. A service that never ends a run cannot fill this computer's memory."""
        if len(self.exchanges) >= _MAX_EXCHANGES:
            return
        content: Any = ""
        if answer is not None and len(answer.text) <= _MAX_BYTES:
            with suppress(NoResponseError):
                content = answer.json()
        self.exchanges.append(
            Exchange(
                method=call.method,
                path=call.path.partition("?")[0].rstrip("/"),
                sent=call.body or {},
                asked_at=asked_at,
                answered_at=answered_at,
                status=0 if answer is None else answer.status,
                content=content,
                date="" if answer is None else str(answer.headers.get("Date", ""))[:100],
            )
        )

    def recording(self, connect: Connect, now: Callable[[], float]) -> Connect:
        """Return what connects as `connect` does, and records every answer."""

        def connected(account: VastAccount) -> Send:
            send = connect(account)

            def sent(call: VastCall, budget: ExchangeBudget) -> Answer:
                asked_at, answer = now(), None
                try:
                    answer = send(call, budget)
                    return answer
                finally:
                    self.record(call, answer, asked_at, now())

            return sent

        return connected

    def begin(self, instance_id: str, at: float | None) -> None:
        """Another machine was rented: what was measured of the one before it does not count."""
        self.instance_id, self.rented_at = instance_id, at
        self.measured.clear()

    def calls(self, method: str, path: str) -> Iterator[Exchange]:
        """Yield the exchanges of that call, oldest first."""
        return (one for one in self.exchanges if one.method == method and one.path == path)

    def ask(self, once: Once, *calls: VastCall, pause_s: float = 0.0) -> list[Exchange]:
        """Make calls in one turn, each once, and return what was answered."""
        before = len(self.exchanges)
        once(*calls, pause_s=pause_s)
        return self.exchanges[before:]

    def note(self, once: Once, name: str, call: VastCall) -> None:
        """Note what one call is answered; nothing where there was no answer, or it came too early."""
        heard = self.ask(once, call)
        if heard and heard[-1].status not in (0, 429):
            self.measured[name] = heard[-1].word


def type_of(value: Any) -> str:
    """Name the type of a JSON value as the table of assumptions does."""
    if value is None:
        return "null"
    names = {bool: "bool", int: "number", float: "number", str: "text", list: "list", dict: "object"}
    return names.get(type(value), "other")


@dataclass(frozen=True, kw_only=True)
class Record:
    """Content of a record file. Amounts are in USD, times in epoch seconds."""

    began_at: _Number
    ended_at: _Number
    run: _Short = ""
    """Id of the run; empty when no offer fitted."""
    instance: _Short = ""
    """Id of the machine; empty when none was rented."""
    machine: _Short = ""
    """Description of its offer."""
    verdict: _Short = ""
    """Cause of the run's end; empty while it is open."""
    run_exit_code: Annotated[int, Range(0, 255)] = 0
    """Exit code of the run, as of `vastrun launch`."""
    counted: Cost = field(default_factory=Cost)
    """Cost of that machine by the ledger."""
    tail_usd: _Number = 0.0
    """Max. of what may be charged for it after its end, in USD."""
    run_usd: _Number = 0.0
    """Cost of all machines of the run, in USD."""
    billed_usd: _Number | None = None
    """USD charged for that machine; None before anything is settled."""
    seen: Mapping[str, assumptions.Value] = field(default_factory=dict)
    """Observations by assumption."""

    @property
    def comparisons(self) -> Sequence[assumptions.Comparison]:
        """All assumptions, compared with what was seen."""
        return [assumptions.compare(name, self.seen.get(name)) for name in assumptions.ASSUMPTIONS]

    @property
    def exit_code(self) -> int:
        """A machine that may be there comes first, then what deviates, then how the run ended."""
        settled = self.billed_usd is not None
        states = {one.state for one in self.comparisons if settled or one.when is assumptions.When.RENT}
        if self.run_exit_code != EXIT_TEARDOWN_NOT_CONFIRMED and assumptions.State.DEVIATES in states:
            return EXIT_DEVIATES
        return self.run_exit_code or (
            EXIT_CODE_OF[Verdict.UNKNOWN] if assumptions.State.NOT_SEEN in states else 0
        )


def write_record(path: Path, record: Record) -> None:
    """Write the file atomically. Raises StorageError."""
    text = json.dumps({**HEADER, **asdict(record)}, indent=2)
    try:
        write_atomically(path, text + "\n")
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}", hint="run it in another folder"
        ) from error


def read_record(path: Path) -> Record:
    """Parse an untrusted file. Raises UsageError with the file and the invalid key."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise ValueError(f"larger than {_MAX_BYTES} bytes")
        document = parse_json(content)
        if not isinstance(document, dict) or not document.items() >= HEADER.items():
            raise ValueError(f"expected an object with {json.dumps(HEADER)}")
        seen = _seen(document.get("seen"))  # its values are of several types, which the table reads
        record: Record = read_as(Record, {**document, "seen": {}})
        return replace(record, seen=seen)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        hint = "a file that `python -m tests.conformance` has written"
        raise UsageError(f"{path}: {error}", hint=hint) from error


def _seen(raw: Any) -> dict[str, assumptions.Value]:
    """Rows that this version does not know are left out: the file may be older or newer."""
    if not isinstance(raw, dict):
        raise ValueError("seen: expected an object")
    seen: dict[str, assumptions.Value] = {}
    for name in (name for name in assumptions.ASSUMPTIONS if name in raw):
        try:
            seen[name] = assumptions.ASSUMPTIONS[name].assumed.read(raw[name])
        except ValueError as error:
            raise ValueError(f"seen: {name}: {error}") from error
    return seen
