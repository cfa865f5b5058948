"""Mixes of tasks: turn by turn one task, the same on all ranks, by weighted round-robin.

Ranks that trained different tasks at once would mix the gradients of different heads without an error, and
the quick ones would wait for the slow.
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


@dataclass(frozen=True, kw_only=True)
class Turn:
    """What is trained at once."""

    task: int
    number: int
    """How many turns the task had before: the place in its own data."""


@dataclass(frozen=True, kw_only=True)
class Mix:
    """The order of the tasks. It repeats itself; in any full period each task has its exact count."""

    cycle: tuple[int, ...]
    """Tasks by number, spread as evenly as they go."""

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
        """The mix of tasks of these sizes. The seed says where in the cycle step 0 stands.

        Raising sizes to 1 / temperature moves the weights from proportional (1) to balanced (high).
        """
        power = {"balanced": 0, "proportional": 1, "temperature": 1 / temperature}[mixing]
        cycle = _round_robin(counts([size**power for size in sizes], period))
        first = int(np.random.default_rng([seed, _MIX_STREAM]).integers(len(cycle)))
        return cls(cycle=cycle[first:] + cycle[:first])

    def turn(self, number: int) -> Turn:
        """What all ranks train in the turn that comes after `number` others."""
        task = self.cycle[number % len(self.cycle)]
        return Turn(task=task, number=self.turns_of(task, number))

    def turns_of(self, task: int, number: int) -> int:
        """How many of the first `number` turns are the task's."""
        laps, rest = divmod(number, len(self.cycle))
        return laps * self._counts[task] + self.cycle[:rest].count(task)

    @cached_property
    def _counts(self) -> Counter[int]:
        return Counter(self.cycle)


def counts(weights: Sequence[float], period: int) -> list[int]:
    """Turns of each task in a period, at least one each: exact when that takes no more than `period`,
    else apportioned by the method of Webster.
    """
    given = [1] * len(weights)
    for _ in range(_length(weights, period) - len(weights)):
        task = max(range(len(weights)), key=lambda task: weights[task] / (2 * given[task] + 1))
        given[task] += 1
    return given


def _length(weights: Sequence[float], period: int) -> int:
    """The shortest period in which whole weights come out exactly, or else `period`."""
    if all(float(weight).is_integer() for weight in weights):
        whole = [int(weight) for weight in weights]
        return min(period, sum(whole) // math.gcd(*whole))
    return period


def _round_robin(counts: Sequence[int]) -> tuple[int, ...]:
    """Each turn goes to the task that is furthest behind its share; ties to the first."""
    credit = [0] * len(counts)
    cycle = []
    for _ in range(sum(counts)):
        credit = [have + count for have, count in zip(credit, counts, strict=True)]
        task = max(range(len(credit)), key=credit.__getitem__)
        credit[task] -= sum(counts)
        cycle.append(task)
    return tuple(cycle)
