"""How the emulated Vast behaves in each row of the table of assumptions: as usual, or as a record says.

`Behaviour(record.seen)` is a Vast as the live one was seen to be.
"""

from collections.abc import Mapping
from typing import Any

from tests.conformance.assumptions import ASSUMPTIONS, UNIT_SPANS, Value
from tests.conformance.recorder import Exchange, type_of
from tests.emulators.answers import Reply, reply, text_reply

_MADE: Mapping[str, Any] = {"null": None, "bool": False, "object": {}, "list": []}


class Behaviour:
    """What it does in each row. Raises ValueError for a row that there is not."""

    def __init__(self, seen: Mapping[str, Value] | None = None) -> None:
        self._seen = dict(seen or {})
        unknown = self._seen.keys() - ASSUMPTIONS.keys()
        if unknown:
            raise ValueError(f"no assumption is called {', '.join(sorted(unknown))}")

    def is_told(self, name: str) -> bool:
        """Whether it does something of its own in that row."""
        return name in self._seen

    def word(self, name: str) -> str:
        """What it says or is."""
        return str(self._seen.get(name, ASSUMPTIONS[name].assumed.usual))

    def number(self, name: str) -> float:
        """How much or how long."""
        value = self._seen.get(name, ASSUMPTIONS[name].assumed.usual)
        assert isinstance(value, int | float)
        return float(value)

    def shaped(self, name: str, row: Any) -> Any:
        """The row with the types of that row of the table."""
        words = self._seen.get(name)
        if not isinstance(words, Mapping) or not isinstance(row, dict):
            return row
        return {
            key: _as(words.get(key, ""), value) for key, value in row.items() if words.get(key) != "missing"
        }

    def in_units(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The offer in the units of `offer.units`."""
        words = self._seen.get("offer.units")
        units = words if isinstance(words, Mapping) else {}
        return {key: _converted(key, value, units) for key, value in row.items()}


def worded(done: Reply, word: str) -> Reply:
    """The reply, said in another way where it is not that word yet."""
    if _word(done) == word:
        return done
    status, _, said = word.partition(" ")
    content = done.content if done.content_type == "application/json" else {}
    kept = {key: value for key, value in content.items() if key not in ("success", "error", "msg")}
    if said == "text":
        return text_reply("API requests too frequent", status=int(status))
    shapes: Mapping[str, Any] = {
        "null": None,
        "list": [],
        "object": {**kept, "msg": "done"},
        "success": {**kept, "success": True},
        "refused": {**kept, "success": False, "msg": "refused"},
        "instances=null": {"instances": None},
    }
    failed = {"success": False, "error": said, "msg": f"error {status}/1: {said}"}
    return reply(shapes.get(said, failed), status=int(status))


def refused(word: str) -> Reply:
    """A reply of that word."""
    return worded(reply({}), word)


def _word(done: Reply) -> str:
    content = done.content if done.content_type == "application/json" else ""
    return Exchange(method="", path="", asked_at=0, answered_at=0, status=done.status, content=content).word


def _as(words: str, value: Any) -> Any:
    """The value, or one of the first of these types where it is of none of them."""
    types = words.split("|") if words else []
    if not types or type_of(value) in types:
        return value
    if types[0] == "text":
        return str(value)
    if types[0] == "number":
        try:
            return float(value)
        except (TypeError, ValueError):
            return 0.0
    return _MADE[types[0]]


def _converted(key: str, value: Any, units: Mapping[str, str]) -> Any:
    if key not in units or type_of(value) != "number":
        return value
    unit = UNIT_SPANS[key].get(units[key])
    return -1 if unit is None else value * unit[2]
