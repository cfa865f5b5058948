"""Figures: measured in turns, shown as medians with their spread and number, and held to their limits."""

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two ways to do one thing, measured in turns so that a busy machine hurts both."""

    candidate: Sequence[float]
    baseline: Sequence[float]

    @property
    def ratio(self) -> float:
        """Median of the ratios of neighbours: what the candidate costs or gives for one of the baseline."""
        return statistics.median(a / b for a, b in zip(self.candidate, self.baseline, strict=True))


@dataclass(frozen=True)
class Limit:
    """What a figure must keep to, in the figure's own unit."""

    bound: float
    is_min: bool

    def allows(self, figure: float) -> bool:
        """Tell whether it holds; what is not a number does not."""
        return figure >= self.bound if self.is_min else figure <= self.bound

    def __str__(self) -> str:
        return f"at {'least' if self.is_min else 'most'} {self.bound:g}"


def min_limit(bound: float) -> Limit:
    return Limit(bound, is_min=True)


def max_limit(bound: float) -> Limit:
    return Limit(bound, is_min=False)


@dataclass(frozen=True)
class Claim:
    """A figure, what it counts, and its limit, if it has one."""

    figure: float
    words: str
    """As after the number: "of a bare loop"."""
    limit: Limit | None = None

    @property
    def holds(self) -> bool:
        return self.limit is None or self.limit.allows(self.figure)

    def __str__(self) -> str:
        return f"{self.figure:.4g} {self.words}" + (f" ({self.limit})" if self.limit else "")


def in_turns(candidate: Callable[[], float], baseline: Callable[[], float], rounds: int) -> Pair:
    """Measure each `rounds` times, one after the other; every round counts."""
    measured = rounds_of([candidate, baseline], rounds)
    return Pair(candidate=[a for a, _ in measured], baseline=[b for _, b in measured])


def rounds_of(ways: Sequence[Callable[[], T]], rounds: int) -> list[list[T]]:
    """What each way gave, round by round; every round counts."""
    return [[way() for way in ways] for _ in range(rounds)]


def show(name: str, pair: Pair, unit: str, *claims: Claim, baseline: str = "bare") -> bool:
    """Print one line, both medians, their spread and number and what is claimed; tell whether that holds."""
    both = f"ours {_spread(pair.candidate)} {unit}   {baseline} {_spread(pair.baseline)} {unit}"
    return report_claims(name, f"{both}   n={len(pair.candidate)}", *claims)


def show_alone(name: str, values: Sequence[float], unit: str, *claims: Claim) -> bool:
    """Print one line, of what is measured beside nothing; tell whether its claims hold."""
    return report_claims(name, f"{_spread(values)} {unit}   n={len(values)}", *claims)


def report_claims(name: str, measured: str, *claims: Claim) -> bool:
    """Print what was measured and what is claimed of it, and on stderr a line for each missed limit."""
    print(f"{name:<24} {measured}   {'; '.join(map(str, claims))}".rstrip(), flush=True)
    for claim in claims:
        if not claim.holds:
            print(f"error: {name.strip()}: limit missed: {claim}", file=sys.stderr, flush=True)
    return all(claim.holds for claim in claims)


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.3g} ({min(values):.3g}..{max(values):.3g})"
