"""Steps a second and memory of the trainer, every safeguard on, beside other loops on the same course."""

from __future__ import annotations

import itertools
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path

from benchmarks.agreements import shares
from benchmarks.box import config, prepare, train_by_hand, train_with_vastrun
from benchmarks.figures import Pair, rounds_of, show

ROUNDS = 4
STEPS = 130
WARM = 30
"""Steps that are left out: the caches warm up."""
BATCH = 64
"""Windows of a rank, which make a step of 50 ms or more."""
MEMORY = 1.03


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A strategy on so many ranks, and what is claimed of it."""

    strategy: str
    ranks: int
    at_least: float


CLAIMS = {
    "single": Claim(strategy="single", ranks=1, at_least=0.98),
    "ddp": Claim(strategy="ddp", ranks=2, at_least=0.97),
    "fsdp2": Claim(strategy="fsdp2", ranks=2, at_least=0.97),
}


@dataclass(frozen=True, kw_only=True)
class Ride:
    """One training."""

    steps_per_s: float
    peak_mib: float


def run(strategy: str) -> None:
    """A table: beside the loop that one would write by hand, and what the agreements of the ranks cost."""
    claim = CLAIMS[strategy]
    with tempfile.TemporaryDirectory() as root:
        boxes = _boxes(Path(root), claim)
        rounds = _rides(boxes, ["benchmarks.bare"])
        speed, memory = (_pair(rounds, 1, what) for what in ("steps_per_s", "peak_mib"))
        title = f"{strategy} x{claim.ranks}"
        show(title, speed, "steps/s", f"{speed.ratio:.3f} of a bare loop (at least {claim.at_least})")
        show("  peak memory", memory, "MiB", f"{memory.ratio:.3f} times (at most {MEMORY})")
        if claim.ranks > 1:
            parts = shares(boxes(), step_s=1 / statistics.median(speed.ours))
            told = ", ".join(f"{name} {share:.2%}" for name, share in parts.items())
            print(f"  agreements of the ranks  {sum(parts.values()):.2%} of the time: {told}", flush=True)


def run_others() -> None:
    """A table: beside Lightning and accelerate, with DDP."""
    others = ["lightning", "accelerate"]
    with tempfile.TemporaryDirectory() as root:
        rounds = _rides(_boxes(Path(root), CLAIMS["ddp"]), [f"benchmarks.in_{name}" for name in others])
    for way, name in enumerate(others, start=1):
        for what, unit in (("steps_per_s", "steps/s"), ("peak_mib", "MiB")):
            pair = _pair(rounds, way, what)
            show(f"ddp x2, {what}", pair, unit, f"{pair.ratio:.3f} of {name}", theirs=name)


def _boxes(root: Path, claim: Claim) -> Callable[[], Path]:
    """Makes a new box at each call."""
    numbers = itertools.count()
    job = replace(config(STEPS), strategy=claim.strategy, batch=BATCH * claim.ranks)
    return lambda: prepare(root / f"box-{next(numbers)}", job, ranks=claim.ranks)


def _rides(box: Callable[[], Path], programs: Sequence[str]) -> list[list[Ride]]:
    """Round by round: ours, then that of each program."""
    trainings = [train_with_vastrun, *(partial(train_by_hand, program=program) for program in programs)]
    ways = [lambda train=train: _ride(train(box())) for train in trainings]
    return rounds_of(ways, ROUNDS)


def _ride(records: list[dict[str, float]]) -> Ride:
    warm = [record for record in records if record.get("step", 0) >= WARM]
    first, last = warm[0], warm[-1]
    return Ride(
        steps_per_s=(last["step"] - first["step"]) / (last["at"] - first["at"]),
        peak_mib=max(record.get("peak_memory_mib", 0.0) for record in records),
    )


def _pair(rounds: list[list[Ride]], way: int, what: str) -> Pair:
    read = attrgetter(what)
    return Pair(ours=[read(rides[0]) for rides in rounds], theirs=[read(rides[way]) for rides in rounds])
