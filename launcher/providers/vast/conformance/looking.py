"""What a tape shows of each assumption. Pure functions; None: it was not seen."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from statistics import median
from typing import Any

from launcher.gate.text import one_line
from launcher.providers.vast.conformance.tape import Exchange, Tape, Value
from launcher.providers.vast.conformance.units import unit_of

Look = Callable[[Tape], Value | None]

LIST, SEARCH, CHARGES = "/api/v1/instances", "/api/v0/bundles", "/api/v0/charges"
_MOST_ROWS = 1000
_LONGEST_WORD = 40
_MOST_AHEAD_S = 366 * 86_400.0


def by_id(instance_id: str) -> str:
    """Return the path of one instance."""
    return f"/api/v0/instances/{instance_id}"


def word_of(exchange: Exchange | None) -> str:
    """Say in a word or two what was answered: `404 no_such_instance`, `200 success`, `429 text`."""
    if exchange is None or not exchange.status:
        return "no answer"
    content, status = exchange.content, exchange.status
    if not exchange.is_json:
        return f"{status} text"
    if not isinstance(content, dict):
        return f"{status} {'null' if content is None else type_of(content)}"
    error = content.get("error")
    if isinstance(error, str) and error:
        # Vast names this one in `msg` only, now and then.
        said = "no_such_ask" if "no_such_ask" in str(content.get("msg"))[:1000] else error
        return f"{status} {one_line(said)[:_LONGEST_WORD]}"
    if "instances" in content and content["instances"] is None:
        return f"{status} instances=null"
    if content.get("success") is True:
        return f"{status} success"
    return f"{status} {'refused' if content.get('success') is False else 'object'}"


def type_of(value: Any) -> str:
    """Name the type of a JSON value as the table of assumptions does."""
    if value is None:
        return "null"
    names = {bool: "bool", int: "number", float: "number", str: "text", list: "list", dict: "object"}
    return names.get(type(value), "other")


def measured(name: str) -> Look:
    """Return what a probe has noted under that name."""
    return lambda tape: tape.measured.get(name)


def offer_fields(names: Mapping[str, str]) -> Look:
    """Look at the types of the fields of all offers."""
    return lambda tape: _types(list(_offers(tape)), names)


def offer_units(tape: Tape) -> Value | None:
    """Tell in which units the offers are, by their middle values."""
    rows = list(_offers(tape))
    units = {}
    for name in (
        "gpu_ram",
        "cpu_ram",
        "disk_space",
        "reliability",
        "end_date",
        "compute_cap",
        "cuda_max_good",
    ):
        numbers = [row[name] for row in rows if type_of(row.get(name)) == "number"]
        if numbers:
            units[name] = unit_of(name, median(numbers))
    return units or None


def instance_fields(names: Mapping[str, str]) -> Look:
    """Look at the types of the fields of the machine's row, asked for by its id."""
    return lambda tape: _types([row for _, row in _own_rows(tape)], names)


def running_fields(names: Mapping[str, str]) -> Look:
    """The same, once it runs."""
    return lambda tape: _types([row for _, row in _own_rows(tape) if _runs(row)], names)


def listed_fields(names: Mapping[str, str]) -> Look:
    """The same, in the list."""
    return lambda tape: _types([row for _, row in _listed_rows(tape)], names)


def list_counts(tape: Tape) -> Value | None:
    """Tell whether the list counts as many instances as it has rows, where it has one page."""
    words = set()
    for page in tape.calls("GET", LIST):
        rows, found = page.fields.get("instances"), page.fields.get("total_instances")
        if isinstance(rows, list) and isinstance(found, int | float) and not page.fields.get("next_token"):
            words.add("as many" if found == len(rows) else "more" if found > len(rows) else "fewer")
    return next((word for word in ("fewer", "more", "as many") if word in words), None)


def create_answer(tape: Tape) -> Value | None:
    """Say what the order was answered that made the machine."""
    created = _created(tape)
    return None if created is None else word_of(created)


def create_fields(names: Mapping[str, str]) -> Look:
    """Look at the types of the fields of that answer."""
    return lambda tape: None if (created := _created(tape)) is None else _types([created.fields], names)


def create_seconds(tape: Tape) -> Value | None:
    """Tell how long that answer took."""
    created = _created(tape)
    return None if created is None else created.seconds


def create_state(tape: Tape) -> Value | None:
    """Say how the machine's row first called its state."""
    first = next((row for _, row in _own_rows(tape)), None)
    return None if first is None else _short(first.get("actual_status"))


def echoed(sent: str, shown: str) -> Look:
    """Tell whether the row's field `shown` is what the order said under `sent`."""

    def look(tape: Tape) -> Value | None:
        created, row = _created(tape), next((row for _, row in _own_rows(tape)), None)
        if created is None or row is None or not isinstance(created.sent, dict):
            return None
        return "echoed" if row.get(shown) == created.sent.get(sent) else "other"

    return look


def price_ratio(tape: Tape) -> Value | None:
    """Tell how many times the price of its offer the machine costs."""
    created, row = _created(tape), next((row for _, row in _own_rows(tape)), None)
    if created is None or row is None:
        return None
    ask = created.path.rpartition("/")[2]
    before = list(_offers(tape, until=created.asked_at))
    offered = [one for one in before if str(one.get("id")) == ask and _positive(one.get("dph_total"))]
    if not offered or not _positive(row.get("dph_total")):
        return None
    return float(row["dph_total"]) / float(offered[-1]["dph_total"])


def start_date_off(tape: Tape) -> Value | None:
    """Tell how many seconds after the order's answer the row says that the machine began."""
    row = next((row for _, row in _own_rows(tape)), None)
    if row is None or tape.rented_at is None or type_of(row.get("start_date")) != "number":
        return None
    return float(row["start_date"]) - tape.rented_at


def seen_by_id_after(tape: Tape) -> Value | None:
    """Tell how long after the order its machine was first shown by its id."""
    looks = [(one.asked_at, bool(one.fields.get("instances"))) for one in _looks(tape)]
    return _first_seen(tape, looks)


def listed_after(tape: Tape) -> Value | None:
    """Tell how long after the order its machine first stood in the list."""
    return _first_seen(tape, [(at, there) for at, there in _in_list(tape)])


def loading_seconds(tape: Tape) -> Value | None:
    """Tell how long after the order the machine was first called running."""
    running = next((one.asked_at for one, row in _own_rows(tape) if _runs(row)), None)
    listed = next((one.asked_at for one, row in _listed_rows(tape) if _runs(row)), None)
    moments = [at for at in (running, listed) if at is not None]
    if not moments or tape.rented_at is None or is_cut(tape, tape.rented_at, min(moments)):
        return None
    return max(0.0, min(moments) - tape.rented_at)


def destroy_answer(tape: Tape) -> Value | None:
    """Say what the first request to end the machine was answered."""
    first = tape.first("DELETE", by_id(tape.instance_id), lambda one: one.status > 0)
    return None if first is None else word_of(first)


def shown_by_id_for(tape: Tape) -> Value | None:
    """Tell how long after its end was agreed to a machine was last shown by its id."""
    return _last_seen(tape, [(one.answered_at, bool(one.fields.get("instances"))) for one in _looks(tape)])


def listed_for(tape: Tape) -> Value | None:
    """Tell how long after its end was agreed to a machine last stood in the list."""
    return _last_seen(tape, list(_in_list(tape)))


def came_back(tape: Tape) -> Value | None:
    """Tell whether a machine was shown again after it had been absent."""
    ended_at = _ended_at(tape)
    if ended_at is None:
        return None
    for looks in (
        [(one.answered_at, bool(one.fields.get("instances"))) for one in _looks(tape)],
        list(_in_list(tape)),
    ):
        there = [seen for at, seen in looks if at > ended_at]
        if False in there and True in there[there.index(False) :]:
            return "yes"
    return "no" if any(one.answered_at > ended_at for one in _looks(tape)) else None


def clock_ahead(tape: Tape) -> Value | None:
    """Tell how many seconds this computer's clock is ahead of the service's."""
    aheads = []
    for one in tape.exchanges:
        try:
            ahead_s = one.answered_at - parsedate_to_datetime(one.date).timestamp()
        except (ValueError, TypeError, OverflowError, OSError):
            continue
        if abs(ahead_s) < _MOST_AHEAD_S:
            aheads.append(ahead_s)
    return median(aheads) if aheads else None


def is_cut(tape: Tape, since: float, until: float) -> bool:
    """Tell whether a question between had no answer: then the time that passed says nothing of the service."""
    return any(one.status == 0 and since <= one.asked_at <= until for one in tape.exchanges)


def charges_of(tape: Tape, instance_id: str) -> Sequence[Mapping[str, Any]]:
    """Return the rows of the newest answers about charges that are of that machine."""
    rows: dict[str, Mapping[str, Any]] = {}
    for page in tape.calls("GET", CHARGES):
        found = page.fields.get("results")
        for row in found[:_MOST_ROWS] if isinstance(found, list) else ():
            if isinstance(row, dict) and row.get("source") == f"instance-{instance_id}":
                rows[f"{row.get('start')} {row.get('type')}"] = row
    return list(rows.values())


def charge_fields(names: Mapping[str, str]) -> Look:
    """Look at the types of the fields of the machine's charges."""
    return lambda tape: _types(charges_of(tape, tape.instance_id), names)


def _types(rows: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> Value | None:
    if not rows:
        return None
    found = {
        name: {type_of(row[name]) if name in row else "missing" for row in rows[:_MOST_ROWS]}
        for name in names
    }
    return {name: "|".join(sorted(words)) for name, words in found.items()}


def _offers(tape: Tape, until: float = math.inf) -> Iterator[Mapping[str, Any]]:
    for search in (one for one in tape.calls("POST", SEARCH) if one.asked_at <= until):
        rows = search.fields.get("offers")
        yield from (row for row in rows if isinstance(row, dict)) if isinstance(rows, list) else ()


def _created(tape: Tape) -> Exchange | None:
    """The order that made the machine."""
    return next(
        (
            one
            for one in tape.exchanges
            if one.method == "PUT"
            and re.fullmatch(r"/api/v0/asks/\d+", one.path)
            and str(one.fields.get("new_contract")) == tape.instance_id
        ),
        None,
    )


def _looks(tape: Tape) -> Iterator[Exchange]:
    """Answers about the machine by its id that say whether there is one."""
    for one in tape.calls("GET", by_id(tape.instance_id)):
        if one.status in (200, 404) and one.fields and one.fields.get("error") != "auth_error":
            yield one


def _own_rows(tape: Tape) -> Iterator[tuple[Exchange, Mapping[str, Any]]]:
    for one in _looks(tape):
        if isinstance(row := one.fields.get("instances"), dict):
            yield one, row


def _listed_rows(tape: Tape) -> Iterator[tuple[Exchange, Mapping[str, Any]]]:
    for page in tape.calls("GET", LIST):
        rows = page.fields.get("instances")
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict) and str(row.get("id")) == tape.instance_id:
                yield page, row


def _in_list(tape: Tape) -> Iterator[tuple[float, bool]]:
    """When the list was asked for, and whether the machine stood in it. One of several pages may lack it."""
    for page in tape.calls("GET", LIST):
        rows = page.fields.get("instances")
        if isinstance(rows, list):
            there = any(isinstance(row, dict) and str(row.get("id")) == tape.instance_id for row in rows)
            if there or not page.fields.get("next_token"):
                yield page.asked_at, there


def _first_seen(tape: Tape, looks: Sequence[tuple[float, bool]]) -> float | None:
    """Seconds from the order; one that was never seen counts until the last look before its end."""
    if tape.rented_at is None:
        return None
    seen = next((at for at, there in looks if there), None)
    if seen is None:
        ended_at = _ended_at(tape)
        missed = [at for at, _ in looks if at > tape.rented_at and (ended_at is None or at < ended_at)]
        seen = missed[-1] if missed else None
    if seen is None or is_cut(tape, tape.rented_at, seen):
        return None
    return max(0.0, seen - tape.rented_at)


def _ended_at(tape: Tape) -> float | None:
    ended = tape.first("DELETE", by_id(tape.instance_id), lambda one: 200 <= one.status < 300)
    return None if ended is None else ended.answered_at


def _last_seen(tape: Tape, looks: Sequence[tuple[float, bool]]) -> float | None:
    """Seconds from the agreed end to the last look that still had the machine; 0 where none had."""
    ended_at = _ended_at(tape)
    after = [(at, there) for at, there in looks if ended_at is not None and at >= ended_at]
    if ended_at is None or not after:
        return None
    last = max((at for at, there in after if there), default=ended_at)
    return None if is_cut(tape, ended_at, last) else last - ended_at


def _runs(row: Mapping[str, Any]) -> bool:
    return row.get("actual_status") == "running"


def _positive(value: Any) -> bool:
    return type_of(value) == "number" and value > 0


def _short(value: Any) -> str:
    return one_line(value)[:_LONGEST_WORD] if isinstance(value, str) and value else type_of(value)
