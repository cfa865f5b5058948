"""The filter language: `{"num_gpus": {"gte": "2"}}`, values coerced by the type of the column."""

import operator
from collections.abc import Callable, Mapping
from typing import Any

from tests.emulators.answers import refusal

Row = Mapping[str, Any]

_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "neq": operator.ne,
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}
_MEMBERSHIP: Mapping[str, Callable[[bool], bool]] = {"in": bool, "notin": operator.not_, "nin": operator.not_}


def matches(row: Row, filters: Mapping[str, Any]) -> bool:
    """Whether the row satisfies every filter. A column that the row does not have filters nothing."""
    return all(
        _holds(row[column], op, wanted)
        for column, conditions in filters.items()
        if column in row
        for op, wanted in _conditions(column, conditions).items()
    )


def sort_key(column: str, *, reverse: bool) -> Callable[[Row], tuple[bool, Any]]:
    """Sorts rows by a column; rows without a value come last, whatever the direction."""

    def key(row: Row) -> tuple[bool, Any]:
        value = row.get(column)
        return ((value is None) != reverse, 0 if value is None else value)

    return key


def _conditions(column: str, conditions: Any) -> Mapping[str, Any]:
    if not isinstance(conditions, Mapping):
        return {"eq": conditions}
    unknown = [op for op in conditions if op not in _COMPARE and op not in _MEMBERSHIP]
    if unknown:
        raise refusal(400, "invalid_request", f"Error in query parameters: {column}: unknown op {unknown[0]}")
    return conditions


def _holds(value: Any, op: str, wanted: Any) -> bool:
    if op in _MEMBERSHIP:
        listed = wanted if isinstance(wanted, list) else [wanted]
        return _MEMBERSHIP[op](any(value == _coerced(one, value) for one in listed))
    wanted = _coerced(wanted, value)
    if value is None or wanted is None:
        return op in ("eq", "neq") and _COMPARE[op](value, wanted)
    return _COMPARE[op](value, wanted)


def _coerced(wanted: Any, value: Any) -> Any:
    """`wanted` as a value of the same type as the column's."""
    if wanted is None or value is None:
        return wanted
    if isinstance(value, bool):
        return wanted.lower() in ("true", "1") if isinstance(wanted, str) else bool(wanted)
    if isinstance(value, int | float):
        try:
            return float(wanted)
        except (TypeError, ValueError) as error:
            raise refusal(
                400, "invalid_request", f"Error in query parameters: {wanted!r} is no number"
            ) from error
    return str(wanted)
