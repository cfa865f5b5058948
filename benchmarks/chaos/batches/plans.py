"""Plans of batches: their points, their budget and their troubles; always the same for the same seed."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from benchmarks.chaos.plans import MONEY_USD, TAIL_USD, box, cut, fault, pause
from benchmarks.chaos.troubles import COMPANY, FAULT, HANG_UP, KILL, LAUNCHER, OF_REQUESTS, USER, Trouble
from vastrun.launcher.core import Cause

EDIT = "edit"
"""The batch file is edited and submitted again while the batch runs."""
STOP = "batch stop"
RESUME_BESIDE, WATCH = "batch resume beside it", "batch watch"

_RUN_USD, _RUN_HOURS = 0.06 + TAIL_USD, 0.08
_POINT_USD = 0.0025 + TAIL_USD
"""About what a point costs that nothing happens to."""
_LONG_S = 45.0
"""About how long a batch takes: its troubles come within it."""
_REQUESTS = 90

RunEndDocument = Literal["well", "fails", "stays"]


@dataclass(frozen=True, kw_only=True)
class PointPlan:
    """One point of a batch file."""

    number: int
    ending: RunEndDocument
    """`stays`: its program goes on until its money ends it."""
    interruptible: bool
    retries: bool

    @property
    def values(self) -> dict[str, Any]:
        """As they stand in the file."""
        values: dict[str, Any] = {"n": self.number, "ending": self.ending}
        if self.interruptible:
            values["resources.interruptible"] = True
        if self.retries:
            values |= {f"retry.{cause}": 1 for cause in ("preempted", "lost", "signal", "host")}
        return values


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """What befalls one batch."""

    number: int
    points: tuple[PointPlan, ...]
    edited: tuple[PointPlan, ...]
    """Those of the edited file."""
    parallel: int
    machines: int
    """Of the whole market: now and then no more than are taken at once."""
    run_usd: float
    budget_usd: float
    same_cause: int
    """So many failures of one cause end it."""
    troubles: tuple[Trouble, ...] = field(default_factory=tuple)

    @property
    def by_number(self) -> dict[int, PointPlan]:
        """Every point that it ever has."""
        return {point.number: point for point in (*self.points, *self.edited)}

    @property
    def run_hours(self) -> float:
        """The limit of time of each run."""
        return _RUN_HOURS

    def has(self, kind: str) -> bool:
        """Whether it is among the troubles."""
        return any(trouble.kind == kind for trouble in self.troubles)


def batch_plan(seed: int, number: int) -> BatchPlan:
    """Return the plan of the batch with that number."""
    chance = random.Random(f"batch-{seed}-{number}")
    by_money = chance.random() < 0.25
    points = tuple(_point(chance, n, by_money) for n in range(chance.randint(5, 8)))
    passed = [point for point in points if chance.random() < 0.75] or list(points)
    added = [_point(chance, len(points) + n, by_money) for n in range(chance.randint(1, 2))]
    parallel = chance.randint(2, 3)
    run_usd = MONEY_USD if by_money else _RUN_USD
    tight = chance.random() < 0.35
    room_usd = _POINT_USD * chance.uniform(0.5, 3.0) if tight else run_usd * len(points)
    return BatchPlan(
        number=number,
        points=points,
        edited=(*passed, *added),
        parallel=parallel,
        machines=chance.choice((parallel, 4, 7)),
        run_usd=run_usd,
        budget_usd=round(run_usd * (parallel - chance.randint(0, 1)) + room_usd, 4),
        same_cause=chance.choice((3, 100)),
        troubles=tuple(_troubles(chance, any(point.interruptible for point in points), len(points))),
    )


def _point(chance: random.Random, number: int, by_money: bool) -> PointPlan:
    ending: RunEndDocument = "fails" if chance.random() < 0.2 else "well"
    if by_money and chance.random() < 0.3:
        ending = "stays"
    return PointPlan(
        number=number, ending=ending, interruptible=chance.random() < 0.4, retries=chance.random() < 0.4
    )


def _troubles(chance: random.Random, bids: bool, points: int) -> Sequence[Trouble]:
    found = [_at(chance, Trouble(kind=LAUNCHER, name=KILL)) for _ in range(chance.choice((0, 1, 2, 3, 4)))]
    often = {
        Trouble(kind=LAUNCHER, name=HANG_UP): 0.2,
        Trouble(kind=USER, name=STOP, excuses=frozenset({Cause.STOPPED})): 0.15,
        Trouble(kind=COMPANY, name=RESUME_BESIDE): 0.3,
        Trouble(kind=COMPANY, name=WATCH): 0.15,
        Trouble(kind=EDIT, name="edited file"): 0.3,
        pause(chance, False): 0.25,
        cut(chance, False): 0.25,
    }
    found += [_at(chance, trouble) for trouble, share in often.items() if chance.random() < share]
    if chance.random() < 0.25:
        found.append(box(chance, False))
    if bids and chance.random() < 0.7:
        outbid = Trouble(kind=FAULT, name="outbid", excuses=frozenset({Cause.PREEMPTED, Cause.OUTPUTS_LOST}))
        found.append(replace(outbid, seconds=chance.uniform(0.5, 4.0), after=chance.randrange(2)))
    for _ in range(chance.choice((0, 1, 1, 2, 3))):
        one = fault(chance, False)
        chances = _REQUESTS if one.name in OF_REQUESTS else points
        found.append(replace(one, after=chance.randrange(chances)))
    return found


def _at(chance: random.Random, trouble: Trouble) -> Trouble:
    """Return it at its moment, now and then before the first machine."""
    if chance.random() < 0.1:
        return replace(trouble, at_s=chance.uniform(0.2, 3.0), early=True)
    return replace(trouble, at_s=chance.uniform(0.0, _LONG_S))
