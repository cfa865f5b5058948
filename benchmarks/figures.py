"""Figures: measured in interleaved pairs, shown as medians and their ratio."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two ways to do one thing, measured in turns so that a busy machine hurts both."""

    ours: Sequence[float]
    theirs: Sequence[float]

    @property
    def ratio(self) -> float:
        """Median of the ratios of neighbours: what ours costs or gives for one of theirs."""
        return statistics.median(a / b for a, b in zip(self.ours, self.theirs, strict=True))

    @property
    def difference(self) -> float:
        """Median of the differences of neighbours."""
        return statistics.median(a - b for a, b in zip(self.ours, self.theirs, strict=True))


def in_turns(ours: Callable[[], float], theirs: Callable[[], float], rounds: int) -> Pair:
    """Each measured `rounds` times, one after the other; the first round warms caches and is dropped."""
    measured = rounds_of([ours, theirs], rounds)
    return Pair(ours=[a for a, _ in measured], theirs=[b for _, b in measured])


def rounds_of(ways: Sequence[Callable[[], T]], rounds: int) -> list[list[T]]:
    """What each way gave, round by round; the first round warms caches and is dropped."""
    return [[way() for way in ways] for _ in range(rounds + 1)][1:]


def show(name: str, pair: Pair, unit: str, verdict: str, theirs: str = "bare") -> None:
    """One line: both medians, their spread, and what is claimed."""
    print(
        f"{name:<24} ours {_spread(pair.ours)} {unit}   {theirs} {_spread(pair.theirs)} {unit}   {verdict}",
        flush=True,
    )


def show_alone(name: str, values: Sequence[float], unit: str, verdict: str) -> None:
    """One line, of what has nothing to be compared with."""
    print(f"{name:<24} {_spread(values)} {unit}   {verdict}", flush=True)


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.3g} ({min(values):.3g}..{max(values):.3g})"
