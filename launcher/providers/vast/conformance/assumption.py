"""Assumption: a row of what vastrun takes for granted, and its comparison with what was seen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Value = str | float | Mapping[str, str]
"""An observation of one assumption: a word, a number, or a word for each of several fields."""
_MAX_WORD, _MAX_FIELDS, _MAX_NUMBER = 80, 200, 1e12


class Words:
    """Any of these words, for example `404 no_such_instance`; the first is the usual one."""

    def __init__(self, *allowed: str) -> None:
        self._allowed = allowed
        self.usual: Value = allowed[0]

    def read(self, raw: Any) -> Value:
        return _word(raw)

    def agrees(self, seen: Value) -> bool:
        return seen in self._allowed

    def shown(self, seen: Value) -> str:
        return str(seen)

    def __str__(self) -> str:
        return " or ".join(self._allowed)


@dataclass(frozen=True)
class Within:
    """A number from `low` to `high`."""

    low: float
    high: float
    unit: str
    usual: float = 0.0

    def read(self, raw: Any) -> Value:
        if isinstance(raw, bool) or not isinstance(raw, int | float) or not abs(raw) <= _MAX_NUMBER:
            raise ValueError(f"expected a number, got {str(raw)[:_MAX_WORD]!r}")
        return float(raw)

    def agrees(self, seen: Value) -> bool:
        return isinstance(seen, int | float) and self.low <= seen <= self.high

    def shown(self, seen: Value) -> str:
        return f"{seen:.3g} {self.unit}"

    def __str__(self) -> str:
        if math.isinf(self.high):
            return f"at least {self.low:g} {self.unit}"
        if self.low == self.high:
            return f"{self.low:g} {self.unit}"
        return f"{'at most' if self.low == 0 else f'{self.low:g} to'} {self.high:g} {self.unit}"


class Fields:
    """Fields, each with these words alone, `|` between them: types, or a unit."""

    def __init__(self, expected: Mapping[str, str]) -> None:
        self.usual: Mapping[str, str] = expected

    def read(self, raw: Any) -> Value:
        if not isinstance(raw, dict) or len(raw) > _MAX_FIELDS:
            raise ValueError(f"expected fields, got {str(raw)[:_MAX_WORD]!r}")
        return {_word(name): _word(word) for name, word in raw.items()}

    def agrees(self, seen: Value) -> bool:
        return isinstance(seen, Mapping) and not self._deviating(seen)

    def shown(self, seen: Value) -> str:
        if not isinstance(seen, Mapping):
            return str(seen)
        return ", ".join(f"{name} is {seen[name]}" for name in self._deviating(seen)) or f"{len(seen)} fields"

    def __str__(self) -> str:
        return f"{len(self.usual)} fields"

    def _deviating(self, seen: Mapping[str, str]) -> list[str]:
        """Return the fields that differ from what is assumed; a field that was not seen does not."""
        expected = {name: set(words.split("|")) for name, words in self.usual.items() if name in seen}
        return [name for name, words in expected.items() if not set(seen[name].split("|")) <= words]


Kind = Words | Within | Fields
"""The values that agree with an assumption.

`read` reads one from a file, and raises ValueError for anything that no conformance run writes. `shown`
writes one: of fields, those that differ. The emulator does what is `usual`.
"""


class State(StrEnum):
    """Result of the comparison of an assumption."""

    AGREES = "agrees"
    DEVIATES = "deviates"
    NOT_SEEN = "not seen"


class When(StrEnum):
    """Time at which it can be seen."""

    RENT = "rent"
    SETTLE = "settle"
    """Minutes later, when what was charged is settled."""


@dataclass(frozen=True)
class Assumption:
    """One thing that the live service is taken to do."""

    text: str
    """Subject of the assumption, in a few words."""
    assumed: Kind
    how: str
    """Source of the observation, in words."""
    rests: str
    """Code that depends on it."""
    when: When = When.RENT
    follows: str = ""
    """Name of the row that is seen whenever this one is tried; empty: every run tries it."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """An assumption and what was seen of it."""

    name: str
    assumption: Assumption
    state: State
    seen: Value | None

    @property
    def seen_text(self) -> str:
        """Text of what was seen; empty where nothing was."""
        return "" if self.seen is None else self.assumption.assumed.shown(self.seen)


def compare(name: str, assumption: Assumption, seen: Value | None) -> Comparison:
    """Compare one assumption with what was seen; None: it was not."""
    state = State.NOT_SEEN
    if seen is not None:
        state = State.AGREES if assumption.assumed.agrees(seen) else State.DEVIATES
    return Comparison(name=name, assumption=assumption, state=state, seen=seen)


def _word(raw: Any) -> str:
    if not isinstance(raw, str) or not 0 < len(raw) <= _MAX_WORD or not raw.isprintable():
        raise ValueError(f"expected a short word, got {str(raw)[:_MAX_WORD]!r}")
    return raw
