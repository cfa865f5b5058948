"""Plans: which program trains, and at which of its steps its machines are destroyed."""

import random
from dataclasses import dataclass
from pathlib import Path

from benchmarks.chaos.layouts.train import LAYOUTS, SAVE_EVERY

EXAMPLES = Path(__file__).parents[3] / "examples"
STEP_S = 0.8
"""Seconds that a step takes: checkpoints are downloaded while the program trains, every 5 s at most."""
_LAST_DESTROYED = 36
"""After that, the program could be done before its machine is destroyed."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program of `examples/`, or one that saves in a layout."""

    name: str
    """Its folder."""
    module: str
    """The package that it needs."""
    weights: str = "results/weights.pt"
    """The file of its final weights, within the outputs of a run."""

    layout: str | None = None

    @property
    def job(self) -> Path:
        folder = EXAMPLES / self.name if self.layout is None else Path(__file__).parents[1] / "layouts"
        return folder / "job.yaml"


PROGRAMS = {
    program.name: program
    for program in (
        Program(name="plain_torch", module="torch"),
        Program(name="hugging_face", module="transformers", weights="final/model.safetensors"),
        Program(name="lightning", module="lightning"),
        Program(name="accelerate", module="accelerate"),
        Program(name="distributed_checkpoint", module="torch"),
        *(Program(name=name, module="json", weights="results/weights.json", layout=name) for name in LAYOUTS),
    )
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One run of a program."""

    program: Program
    number: int
    steps: tuple[int, ...]
    """The step at which each machine is destroyed, the first machine's first."""
    delay_s: float
    """Seconds after the step is done."""


def plan(program: Program, seed: int, number: int) -> Plan:
    """Draw the steps: one run in five before the first checkpoint, one in four on two machines.

    A program with a layout loses two machines in each run.
    """
    chance = random.Random(f"{program.name}-{seed}-{number}")
    first = (
        chance.randint(1, SAVE_EVERY - 1) if number % 5 == 4 else chance.randint(SAVE_EVERY, _LAST_DESTROYED)
    )
    second = (
        (chance.randint(min(first + 3, _LAST_DESTROYED), _LAST_DESTROYED),)
        if program.layout or number % 4 == 3
        else ()
    )
    return Plan(program=program, number=number, steps=(first, *second), delay_s=chance.uniform(0.0, STEP_S))
