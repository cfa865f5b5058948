"""What a tape shows of each assumption. Pure functions; None: it was not seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from launcher.gate.text import one_line
from launcher.providers.vast.conformance.answers import (
    LIST,
    by_id,
    created_by,
    is_running,
    listed_rows,
    number_of,
    offers_on,
    own_rows,
    type_of,
)
from launcher.providers.vast.conformance.tape import Exchange, Tape, Value
from launcher.providers.vast.conformance.units import unit_of

Look = Callable[[Tape], Value | None]

CHARGES = "/api/v0/charges"
_MOST_ROWS = 1000
_LONGEST_WORD = 40


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


def refusal_values(refused: Exchange) -> dict[str, Value]:
    """Say how a call that came too early was refused: its text, and what its headers tell."""
    text = refused.text if not refused.is_json else str(refused.fields.get("msg", ""))
    return {
        "limit.retry_after": "yes" if refused.retry_after else "no",
        "limit.body": one_line(text[:200].partition(":")[0]).strip()[:_LONGEST_WORD] or "empty",
        "limit.headers": one_line(" ".join(refused.limits))[:_LONGEST_WORD] or "none",
    }


def measured(name: str) -> Look:
    """Return what a probe has noted under that name."""
    return lambda tape: tape.measured.get(name)


def offer_fields(names: Mapping[str, str]) -> Look:
    """Look at the types of the fields of all offers."""
    return lambda tape: _types(list(offers_on(tape)), names)


def offer_units(tape: Tape) -> Value | None:
    """Tell in which units the offers are, by their middle values."""
    rows = list(offers_on(tape))
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
        numbers = [number for row in rows if (number := number_of(row.get(name))) is not None]
        if numbers:
            units[name] = unit_of(name, median(numbers))
    return units or None


def instance_fields(names: Mapping[str, str]) -> Look:
    """Look at the types of the fields of the machine's row, asked for by its id."""
    return lambda tape: _types([row for _, row in own_rows(tape)], names)


def running_fields(names: Mapping[str, str]) -> Look:
    """Look at the same, once it runs."""
    return lambda tape: _types([row for _, row in own_rows(tape) if is_running(row)], names)


def listed_fields(names: Mapping[str, str]) -> Look:
    """Look at the same, in the list."""
    return lambda tape: _types([row for _, row in listed_rows(tape)], names)


def list_counts(tape: Tape) -> Value | None:
    """Tell whether the list counts as many instances as it has rows, where it has one page."""
    words = set()
    for page in tape.calls("GET", LIST):
        rows, found = page.fields.get("instances"), number_of(page.fields.get("total_instances"))
        if isinstance(rows, list) and found is not None and not page.fields.get("next_token"):
            words.add("as many" if found == len(rows) else "more" if found > len(rows) else "fewer")
    return next((word for word in ("fewer", "more", "as many") if word in words), None)


def create_answer(tape: Tape) -> Value | None:
    """Say what the order was answered that made the machine."""
    created = created_by(tape)
    return None if created is None else word_of(created)


def create_fields(names: Mapping[str, str]) -> Look:
    """Look at the types of the fields of that answer."""
    return lambda tape: None if (created := created_by(tape)) is None else _types([created.fields], names)


def create_state(tape: Tape) -> Value | None:
    """Say how the machine's row first called its state."""
    first = next((row for _, row in own_rows(tape)), None)
    return None if first is None else short(first.get("actual_status"))


def echoed(sent: str, shown: str) -> Look:
    """Tell whether the row's field `shown` is what the order said under `sent`."""

    def look(tape: Tape) -> Value | None:
        created, row = created_by(tape), next((row for _, row in own_rows(tape)), None)
        if created is None or row is None or not isinstance(created.sent, dict):
            return None
        return "echoed" if row.get(shown) == created.sent.get(sent) else "other"

    return look


def price_ratio(tape: Tape) -> Value | None:
    """Tell how many times the price of its offer the machine costs."""
    created, row = created_by(tape), next((row for _, row in own_rows(tape)), None)
    if created is None or row is None:
        return None
    ask = created.path.rpartition("/")[2]
    before = list(offers_on(tape, until=created.asked_at))
    offered = [one for one in before if str(one.get("id")) == ask and _positive(one.get("dph_total"))]
    if not offered or not _positive(row.get("dph_total")):
        return None
    return float(row["dph_total"]) / float(offered[-1]["dph_total"])


def destroy_answer(tape: Tape) -> Value | None:
    """Say what the first request to end the machine was answered."""
    first = tape.first("DELETE", by_id(tape.instance_id), lambda one: one.status > 0)
    return None if first is None else word_of(first)


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


def _positive(value: Any) -> bool:
    return (number_of(value) or 0.0) > 0


def short(value: Any) -> str:
    """Return a short word for what a row says, or its type."""
    return one_line(value)[:_LONGEST_WORD] if isinstance(value, str) and value else type_of(value)
