"""Steps a second and memory of the trainer, every safeguard on, beside a bare loop on the same workload."""

import itertools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.box import config, prepare, train_by_hand, train_with_vastrun
from benchmarks.figures import Claim, Limit, Pair, in_turns, max_limit, min_limit, show
from benchmarks.memory import PeakWatch
from benchmarks.time_slices import Training, by_hand, run_in_slices, with_vastrun
from vastrun.onstart.supervision.launch import healthy_gpus
from vastrun.trainer.job.config import ModelConfig
from vastrun.trainer.job.data_config import DataConfig

ROUNDS = 8
STEPS = 200
SAVE_EVERY = 100
"""The first checkpoint opens the steps that are measured, all after it: to save it is one of them. Both sides
have waited for the device then, as at the end."""
BATCH = 64
"""Windows of a rank, which make a step of 50 ms or more."""

MEMORY = max_limit(1.03)
MEMORY_ROUNDS = 3
MEMORY_STEPS, MEMORY_SAVE_EVERY = 4, 2
MEMORY_BATCH = 512
"""So many that what they need is far more than what the programs themselves take."""

ON_GPUS = {"model": ModelConfig(dim=512, depth=8, heads=8, patch=4), "data": (DataConfig(points=256),)}
"""Of what would take too long on a CPU, and no time at all on a GPU with the usual model."""

Way = Callable[[Path], Training]
"""How to train in a box."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """A strategy on so many ranks, and its limit."""

    strategy: str
    ranks: int
    speed: Limit
    """Of a bare loop's steps a second."""


SETUPS = {
    "single": Setup(strategy="single", ranks=1, speed=min_limit(0.99)),
    "ddp": Setup(strategy="ddp", ranks=2, speed=min_limit(0.99)),
    "fsdp2": Setup(strategy="fsdp2", ranks=2, speed=min_limit(0.99)),
}


def run(strategy: str) -> bool:
    """Print a table: beside the loop that one would write by hand."""
    setup = SETUPS[strategy]
    with tempfile.TemporaryDirectory() as root:
        boxes = Boxes(Path(root), setup)
        rounds = _speeds(boxes, [with_vastrun, by_hand])
        speed = Pair(candidate=[candidate for candidate, _ in rounds], baseline=[bare for _, bare in rounds])
        memory = in_turns(
            lambda: _peak_mib(boxes, train_with_vastrun),
            lambda: _peak_mib(boxes, train_by_hand),
            MEMORY_ROUNDS,
        )
        name = f"{strategy} x{setup.ranks}"
        holds = [
            show(f"{name}, speed", speed, "steps/s", Claim(speed.ratio, "of a bare loop", setup.speed)),
            show(f"{name}, peak memory", memory, "MiB", Claim(memory.ratio, "of a bare loop's", MEMORY)),
        ]
    return all(holds)


class Boxes:
    """Makes new boxes for the trainings of a setup: on GPUs when every rank can have one."""

    def __init__(self, root: Path, setup: Setup) -> None:
        self._root = root
        self._setup = setup
        self._numbers = itertools.count()
        self.gpus = setup.ranks if len(healthy_gpus() or ()) >= setup.ranks else 0
        print(f"{setup.strategy} x{setup.ranks}, on {'GPUs' if self.gpus else 'the CPU'}:", flush=True)

    def new(self, steps: int = STEPS, batch: int = BATCH, save_every: int = SAVE_EVERY) -> Path:
        """`batch`: windows of each rank."""
        setup = self._setup
        job = replace(config(steps), strategy=setup.strategy, batch=batch * setup.ranks)
        job = replace(job, checkpoint_every=save_every, **(ON_GPUS if self.gpus else {}))
        folder = self._root / f"box-{next(self._numbers)}"
        return prepare(folder, job, ranks=setup.ranks, gpus=self.gpus)


def _speeds(boxes: Boxes, ways: Sequence[Way]) -> list[list[float]]:
    """Steps a second of each way, round by round."""
    rounds = (run_in_slices([partial(way, boxes.new()) for way in ways]) for _ in range(ROUNDS))
    return [[_steps_per_s(training) for training in trainings] for trainings in rounds]


def _steps_per_s(training: Training) -> float:
    measured = [record for record in training.records() if record.get("step", 0) >= SAVE_EVERY]
    first, last = measured[0], measured[-1]
    return (last["step"] - first["step"]) / training.ran_s(first["at"], last["at"])


def _peak_mib(boxes: Boxes, train: Callable[[Path], list[dict[str, float]]]) -> float:
    """Of the largest rank's process, from its start to its end; on GPUs, of the tensors of rank 0's steps."""
    with PeakWatch() as watch:
        records = train(boxes.new(MEMORY_STEPS, MEMORY_BATCH, MEMORY_SAVE_EVERY))
    return max(record.get("peak_memory_mib", 0.0) for record in records) if boxes.gpus else watch.mib
