"""What a tape's answers hold: offers, the machine's rows, when it was shown. No answer makes them raise."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from launcher.providers.vast.conformance.tape import Exchange, Tape

LIST, SEARCH = "/api/v1/instances", "/api/v0/bundles"
_LARGEST = 1e15


def by_id(instance_id: str) -> str:
    """Return the path of one instance."""
    return f"/api/v0/instances/{instance_id}"


def number_of(value: Any) -> float | None:
    """Return the number; None for what is none, or beyond any that Vast has."""
    if type_of(value) != "number" or not abs(value) <= _LARGEST:
        return None
    return float(value)


def type_of(value: Any) -> str:
    """Name the type of a JSON value as the table of assumptions does."""
    if value is None:
        return "null"
    names = {bool: "bool", int: "number", float: "number", str: "text", list: "list", dict: "object"}
    return names.get(type(value), "other")


def offers_on(tape: Tape, until: float = math.inf) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of all offers that were seen, until a moment."""
    for search in (one for one in tape.calls("POST", SEARCH) if one.asked_at <= until):
        rows = search.fields.get("offers")
        yield from (row for row in rows if isinstance(row, dict)) if isinstance(rows, list) else ()


def created_by(tape: Tape) -> Exchange | None:
    """Return the order that made the machine."""
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


def looks_at(tape: Tape) -> Iterator[Exchange]:
    """Yield answers about the machine by its id that say whether there is one."""
    for one in tape.calls("GET", by_id(tape.instance_id)):
        if one.status in (200, 404) and one.fields and one.fields.get("error") != "auth_error":
            yield one


def own_rows(tape: Tape) -> Iterator[tuple[Exchange, Mapping[str, Any]]]:
    """Yield the machine's rows until its end, asked for by its id."""
    ended_at = ended_at_of(tape) or math.inf
    for one in looks_at(tape):
        if one.asked_at < ended_at and isinstance(row := one.fields.get("instances"), dict):
            yield one, row


def listed_rows(tape: Tape) -> Iterator[tuple[Exchange, Mapping[str, Any]]]:
    """Yield the machine's rows in the list."""
    for page in tape.calls("GET", LIST):
        rows = page.fields.get("instances")
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict) and str(row.get("id")) == tape.instance_id:
                yield page, row


def in_list(tape: Tape) -> Iterator[tuple[float, bool]]:
    """Yield when the list was asked for, and whether the machine stood in it.

    One of several pages may lack it: such a page says nothing.
    """
    for page in tape.calls("GET", LIST):
        rows = page.fields.get("instances")
        if isinstance(rows, list):
            there = any(isinstance(row, dict) and str(row.get("id")) == tape.instance_id for row in rows)
            if there or not page.fields.get("next_token"):
                yield page.asked_at, there


def ended_at_of(tape: Tape) -> float | None:
    """Return when its end was agreed to."""
    ended = tape.first("DELETE", by_id(tape.instance_id), lambda one: 200 <= one.status < 300)
    return None if ended is None else ended.answered_at


def is_running(row: Mapping[str, Any]) -> bool:
    """Tell whether the row calls the machine running."""
    return row.get("actual_status") == "running"
