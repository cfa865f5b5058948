"""Steps a second and memory of the trainer, every safeguard on, beside other loops on the same course."""

from __future__ import annotations

import itertools
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.agreements import shares
from benchmarks.box import config, prepare, train_by_hand, train_with_vastrun
from benchmarks.figures import Pair, rounds_of, show
from trainer.config import DataConfig, ModelConfig
from trainer.supervision.gpus import healthy_gpus

ROUNDS = 4
STEPS = 130
WARM = 30
"""Steps that are left out: the caches warm up."""
BATCH = 64
"""Windows of a rank, which make a step of 50 ms or more."""

MEMORY = 1.03
MEMORY_STEPS = 3
MEMORY_BATCH = 512
"""So many that what they need is far more than what the programs themselves take."""

ON_GPUS = {"model": ModelConfig(dim=512, depth=8, heads=8), "data": (DataConfig(points=256),)}
"""Of what would take too long on a CPU, and no time at all on a GPU with the usual model."""

FRAMEWORKS = ("lightning", "accelerate")

Train = Callable[[Path], list[dict[str, float]]]


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


def run(strategy: str) -> None:
    """A table: beside the loop that one would write by hand, and what the agreements of the ranks cost."""
    claim = CLAIMS[strategy]
    with tempfile.TemporaryDirectory() as root:
        boxes = Boxes(Path(root), claim)
        rounds = _speeds(boxes, [train_with_vastrun, train_by_hand])
        speed = Pair(ours=[ours for ours, _ in rounds], theirs=[bare for _, bare in rounds])
        show("  speed", speed, "steps/s", f"{speed.ratio:.3f} of a bare loop (at least {claim.at_least})")
        memory = Pair(ours=[_peak_mib(boxes, train_with_vastrun)], theirs=[_peak_mib(boxes, train_by_hand)])
        show("  peak memory", memory, "MiB", f"{memory.ratio:.3f} times (at most {MEMORY})")
        if claim.ranks > 1:
            _tell_agreements(boxes, step_s=1 / statistics.median(speed.ours))


def run_frameworks() -> None:
    """A table: beside Lightning and accelerate, with DDP."""
    programs = [partial(train_by_hand, program=f"benchmarks.in_{name}") for name in FRAMEWORKS]
    with tempfile.TemporaryDirectory() as root:
        rounds = _speeds(Boxes(Path(root), CLAIMS["ddp"]), [train_with_vastrun, *programs])
    ours, *theirs = zip(*rounds, strict=True)
    for name, speeds in zip(FRAMEWORKS, theirs, strict=True):
        speed = Pair(ours=ours, theirs=speeds)
        show("  speed", speed, "steps/s", f"{speed.ratio:.3f} of {name}", theirs=name)


class Boxes:
    """Makes new boxes for a claim's trainings: on GPUs when every rank can have one."""

    def __init__(self, root: Path, claim: Claim) -> None:
        self._root = root
        self._claim = claim
        self._numbers = itertools.count()
        self._gpus = claim.ranks if len(healthy_gpus() or ()) >= claim.ranks else 0
        print(f"{claim.strategy} x{claim.ranks}, on {'GPUs' if self._gpus else 'the CPU'}:", flush=True)

    def new(self, steps: int = STEPS, batch: int = BATCH) -> Path:
        """`batch`: windows of each rank."""
        claim = self._claim
        job = replace(config(steps), strategy=claim.strategy, batch=batch * claim.ranks)
        if self._gpus:
            job = replace(job, **ON_GPUS)
        folder = self._root / f"box-{next(self._numbers)}"
        return prepare(folder, job, ranks=claim.ranks, gpus=self._gpus)


def _speeds(boxes: Boxes, trainings: Sequence[Train]) -> list[list[float]]:
    """Steps a second of each training, round by round."""
    return rounds_of([lambda train=train: _steps_per_s(train(boxes.new())) for train in trainings], ROUNDS)


def _steps_per_s(records: list[dict[str, float]]) -> float:
    warm = [record for record in records if record.get("step", 0) >= WARM]
    first, last = warm[0], warm[-1]
    return (last["step"] - first["step"]) / (last["at"] - first["at"])


def _peak_mib(boxes: Boxes, train: Train) -> float:
    """Of rank 0's process, or of its tensors on the GPU."""
    records = train(boxes.new(MEMORY_STEPS, MEMORY_BATCH))
    return max(record.get("peak_memory_mib", 0.0) for record in records)


def _tell_agreements(boxes: Boxes, *, step_s: float) -> None:
    parts = shares(boxes.new(), step_s=step_s)
    told = ", ".join(f"{name} {share:.2%}" for name, share in parts.items())
    print(f"  agreements of the ranks  {sum(parts.values()):.2%} of the time: {told}", flush=True)
