"""Kinds of assumptions: how what was seen is read from a file, compared with what is assumed, and printed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from launcher.providers.vast.conformance.tape import Value

_LONGEST_WORD, _MOST_FIELDS, _LARGEST = 80, 200, 1e12


class Kind(Protocol):
    """What is assumed of one thing."""

    def read(self, raw: Any) -> Value:
        """Return what a file says was seen. Raises ValueError for what no conformance run writes."""
        ...

    def agrees(self, seen: Value) -> bool:
        """Tell whether the service does what is assumed."""
        ...

    def shown(self, seen: Value) -> str:
        """Write what was seen; of many fields, those that deviate."""
        ...

    def __str__(self) -> str:
        """What is assumed."""
        ...


@dataclass(frozen=True)
class Words:
    """One of these words, such as `404 no_such_instance`, was seen."""

    allowed: tuple[str, ...]

    def read(self, raw: Any) -> Value:
        return _word(raw)

    def agrees(self, seen: Value) -> bool:
        return seen in self.allowed

    def shown(self, seen: Value) -> str:
        return str(seen)

    def __str__(self) -> str:
        return " or ".join(self.allowed)


@dataclass(frozen=True)
class Within:
    """A number was seen from `low` to `high`."""

    low: float
    high: float
    unit: str

    def read(self, raw: Any) -> Value:
        if isinstance(raw, bool) or not isinstance(raw, int | float) or not abs(raw) <= _LARGEST:
            raise ValueError(f"expected a number, got {str(raw)[:_LONGEST_WORD]!r}")
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
        if self.low in (0.0, -math.inf):
            return f"at most {self.high:g} {self.unit}"
        return f"{self.low:g} to {self.high:g} {self.unit}"


@dataclass(frozen=True)
class Fields:
    """Each of these fields was seen, with nothing but these words: types, or a unit."""

    wanted: Mapping[str, str]
    """By field, words with `|` between them, as `number|null`."""

    def read(self, raw: Any) -> Value:
        if not isinstance(raw, dict) or len(raw) > _MOST_FIELDS:
            raise ValueError(f"expected fields, got {str(raw)[:_LONGEST_WORD]!r}")
        return {_word(name): _word(word) for name, word in raw.items()}

    def agrees(self, seen: Value) -> bool:
        return isinstance(seen, Mapping) and not self._deviating(seen)

    def shown(self, seen: Value) -> str:
        if not isinstance(seen, Mapping):
            return str(seen)
        wrong = self._deviating(seen)
        return ", ".join(f"{name} is {seen[name]}" for name in wrong) or f"{len(seen)} fields"

    def __str__(self) -> str:
        return f"{len(self.wanted)} fields"

    def _deviating(self, seen: Mapping[str, str]) -> list[str]:
        """Fields that were looked at and are not as assumed; one that was not looked at says nothing."""
        return [
            name
            for name, words in self.wanted.items()
            if name in seen and not set(seen[name].split("|")) <= set(words.split("|"))
        ]


def _word(raw: Any) -> str:
    if not isinstance(raw, str) or not 0 < len(raw) <= _LONGEST_WORD or not raw.isprintable():
        raise ValueError(f"expected a short word, got {str(raw)[:_LONGEST_WORD]!r}")
    return raw
