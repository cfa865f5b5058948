"""Mix: choose the task of each turn, the same on all ranks, by weighted round-robin.

Ranks that train different tasks at once would mix the gradients of different heads without an error, and fast
ranks would wait for slow ones.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

Mixing = Literal["balanced", "proportional", "temperature"]

_MIX_STREAM = 2
"""Keeps these random numbers apart from those of `vastrun/epochs.py` with the same seed."""


@dataclass(frozen=True)
class Turn:
    """One turn: the task that all ranks train, and the progress of that task."""

    task: int
    """The task, by its index in the sizes from which the mix was made."""
    number: int
    """Number of turns that the task had before: its position in its data."""


@dataclass(frozen=True)
class Mix:
    """The order of the tasks, repeated without end. Any full period holds the exact count of each task."""

    cycle: tuple[int, ...]
    """The tasks of one period, by number, spread as evenly as possible."""

    @classmethod
    def of(
        cls,
        sizes: Sequence[int],
        *,
        seed: int,
        mixing: Mixing = "proportional",
        temperature: float = 1.0,
        period: int = 100,
    ) -> Mix:
        """Make the mix of tasks of these sizes. The seed decides where in the cycle turn 0 is.

        The weight of a task is its size to the power 0 (balanced), 1 (proportional) or 1 / temperature: a
        temperature of 1 is proportional, a high one nearly balanced. `period` is the longest cycle, in turns,
        unless there are more tasks than that.
        """
        power = {"balanced": 0, "proportional": 1, "temperature": 1 / temperature}[mixing]
        cycle = _round_robin(counts([size**power for size in sizes], period))
        # Otherwise every short training would begin with the same task, whatever its seed.
        first = int(np.random.default_rng([seed, _MIX_STREAM]).integers(len(cycle)))
        return cls(cycle=cycle[first:] + cycle[:first])

    def turn(self, number: int) -> Turn:
        """Return the turn with this number, counted from 0, the same on all ranks."""
        task = self.cycle[number % len(self.cycle)]
        return Turn(task=task, number=self.turns_of(task, number))

    def turns_of(self, task: int, number: int) -> int:
        """Count the turns of `task` among the first `number` turns."""
        laps, rest = divmod(number, len(self.cycle))
        return laps * self._counts[task] + self.cycle[:rest].count(task)

    @cached_property
    def _counts(self) -> Counter[int]:
        return Counter(self.cycle)


def counts(weights: Sequence[float], period: int) -> list[int]:
    """Return the number of turns of each task in a period, at least one for each.

    They are exact when whole weights allow that within `period` turns, else apportioned by Webster's method.
    """
    # Webster: each further turn goes to the task with the highest weight / (2 turns + 1).
    turns = [1] * len(weights)
    for _ in range(_length(weights, period) - len(weights)):
        task = max(range(len(weights)), key=lambda task: weights[task] / (2 * turns[task] + 1))
        turns[task] += 1
    return turns


def _length(weights: Sequence[float], period: int) -> int:
    """Return the shortest period that represents whole weights exactly, at most `period`."""
    if all(float(weight).is_integer() for weight in weights):
        whole = [int(weight) for weight in weights]
        return min(period, sum(whole) // math.gcd(*whole))
    return period


def _round_robin(counts: Sequence[int]) -> tuple[int, ...]:
    """Give each turn to the task that is furthest behind its share; of equals, to the first."""
    credit = [0] * len(counts)
    cycle = []
    for _ in range(sum(counts)):
        credit = [before + count for before, count in zip(credit, counts, strict=True)]
        task = max(range(len(credit)), key=credit.__getitem__)
        credit[task] -= sum(counts)
        cycle.append(task)
    return tuple(cycle)
