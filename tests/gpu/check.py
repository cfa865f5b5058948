"""Check: something that must hold on a GPU, or is measured there; where it is done, and what it found."""

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from benchmarks.figures import Limit

GIB = 1 << 30


class Broken(AssertionError):
    """Something does not hold; the message says what."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where checks are done: on the GPUs of this machine, or on its CPU, to try the checks themselves."""

    gpus: int
    """0: on the CPU."""

    @property
    def device(self) -> str:
        """Its kind, as torch names it."""
        return "cuda" if self.gpus else "cpu"

    @property
    def cpu(self) -> Self:
        """The CPU of the same machine."""
        return Place(gpus=0)

    def ranks(self, most: int) -> int:
        """Return how many ranks there may be: a GPU each."""
        return min(most, self.gpus) if self.gpus else most

    def gpus_of(self, ranks: int) -> int:
        """Return what a job of so many ranks says of its GPUs."""
        return ranks if self.gpus else 0

    def pick(self, on_gpu: int, on_cpu: int) -> int:
        """Return a size: a CPU takes its time."""
        return on_gpu if self.gpus else on_cpu


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A number with its unit, and the limit that it must keep, if it has one."""

    name: str
    value: float
    unit: str = ""
    limit: Limit | None = None

    @property
    def holds(self) -> bool:
        """Tell whether it keeps its limit; what is not a number keeps none."""
        return math.isfinite(self.value) and (self.limit is None or self.limit.allows(self.value))

    def __str__(self) -> str:
        return f"{self.name} {_short(self.value)}{' ' if self.unit else ''}{self.unit}"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a check found, where everything it asked for holds."""

    text: str = ""
    figures: Sequence[Figure] = ()


Run = Callable[[Place, Path], Seen]
"""Does the check in an empty folder. Raises Broken. Its own process opens no GPU: its ranks do."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One line of the table."""

    text: str
    """What holds when it passes, or what is measured."""
    run: Run
    expected_s: float
    """Seconds that it takes on one H100, start included. It is not begun when less time is left."""
    gpus: int = 1
    """Number of GPUs that it needs."""
    limit_s: float = 120.0
    """It is ended after so many seconds on GPUs."""
    alone: bool = False
    """It measures time, or fills the memory of a GPU: no other check runs beside it."""
    on_cpu: bool = True
    """Its own code can be tried on a CPU."""
    needs: Sequence[str] = ()
    """Packages, and programs as `a|b`: one of them."""

    def lacks(self, place: Place) -> str:
        """Say why it cannot be done here; empty when it can."""
        if place.gpus and place.gpus < self.gpus:
            return f"needs {self.gpus} GPUs, here is {place.gpus}"
        if not place.gpus and not self.on_cpu:
            return "a CPU has nothing of the kind"
        missing = next((name for name in self.needs if not _is_here(name)), None)
        return f"{missing.replace('|', ' or ')} is not installed" if missing else ""


class State(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"
    """It cannot be done here."""
    LEFT = "left"
    """There was no time for it."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of a check."""

    name: str
    text: str
    state: State
    why: str = ""
    """Reason why it failed, was not run or is left."""
    seen: Seen = field(default_factory=Seen)
    seconds: float = 0.0
    timed_out: bool = False
    """It was ended at its limit."""


def concluded(name: str, check: Check, seen: Seen, seconds: float) -> Result:
    """Return the result of a check that came to its end: its figures must keep their limits."""
    missed = [f"{figure} (limit: {figure.limit})" for figure in seen.figures if not figure.holds]
    return Result(
        name=name,
        text=check.text,
        state=State.FAILED if missed else State.PASSED,
        why="; ".join(missed),
        seen=seen,
        seconds=seconds,
    )


def expect(holds: object, text: str) -> None:
    """Raise Broken with the text where it does not hold."""
    if not holds:
        raise Broken(text)


def figures_of(unit: str, limit: Limit | None, values: Mapping[str, float]) -> list[Figure]:
    """Return figures with one unit and one limit."""
    return [Figure(name=name, value=value, unit=unit, limit=limit) for name, value in values.items()]


def _short(value: float) -> str:
    """Return three digits, without an exponent where the number is a usual one."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"


def _is_here(name: str) -> bool:
    programs = name.split("|")
    if len(programs) > 1:
        return any(shutil.which(program) for program in programs)
    return find_spec(name) is not None
