"""Assumption: a row of what vastrun takes for granted, and how what was seen compares with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from launcher.providers.vast.conformance.kinds import Kind
from launcher.providers.vast.conformance.looking import Look
from launcher.providers.vast.conformance.tape import Value


class State(StrEnum):
    """What was found out about an assumption."""

    AGREES = "agrees"
    DEVIATES = "deviates"
    NOT_SEEN = "not seen"


class When(StrEnum):
    """When it can be seen."""

    RENT = "rent"
    SETTLE = "settle"
    """Minutes later, when what was charged is settled."""


@dataclass(frozen=True, kw_only=True)
class Assumption:
    """One thing that the live service is taken to do."""

    text: str
    """What is assumed of, in a few words."""
    assumed: Kind
    usual: Value
    """What the emulator does, unless it is told otherwise."""
    look: Look
    """How it is seen on a tape."""
    how: str
    """The same, in words."""
    rests: str
    """What of the code rests on it."""
    when: When = When.RENT
    optional: bool = False
    """It is looked at only when the user asks for restarts."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """An assumption beside what was seen."""

    name: str
    assumption: Assumption
    state: State
    seen: Value | None

    @property
    def seen_text(self) -> str:
        """What was seen; empty where nothing was."""
        return "" if self.seen is None else self.assumption.assumed.shown(self.seen)


def compare(name: str, assumption: Assumption, seen: Value | None) -> Comparison:
    """Compare one assumption with what was seen; None: it was not."""
    if seen is None:
        state = State.NOT_SEEN
    else:
        state = State.AGREES if assumption.assumed.agrees(seen) else State.DEVIATES
    return Comparison(name=name, assumption=assumption, state=state, seen=seen)


def compare_all(table: Mapping[str, Assumption], seen: Mapping[str, Value]) -> list[Comparison]:
    """Compare every row of the table with what was seen, in the table's order."""
    return [compare(name, assumption, seen.get(name)) for name, assumption in table.items()]
