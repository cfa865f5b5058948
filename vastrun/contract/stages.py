"""Stages: steps and results of the stages that one run trains one after another. Standard library only.

The steps of a run count on through its stages: names of checkpoints, metrics and progress rise from the first
step of the first stage to the last step of the last one, and the step tells the stage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from vastrun.contract import layout
from vastrun.contract.outcome import Line, Name, Step
from vastrun.contract.records import MaxLength, read_json


@dataclass(frozen=True, kw_only=True)
class StageSpan:
    """One stage, and its steps among those of the run."""

    name: str
    number: int
    """Its place in the run, from 0."""
    first_step: int
    """Steps of the run before this stage."""
    steps: int

    @property
    def end_step(self) -> int:
        """Return the step of the run after which this stage is trained."""
        return self.first_step + self.steps


@dataclass(frozen=True, kw_only=True)
class StageRecord:
    """The result of a finished stage: an item of `run/stages.json`, and of the checkpoints after it."""

    stage: Name
    first_step: Step
    steps: Step
    loss: float | None = None
    """Last logged loss."""
    scores: Annotated[Mapping[Name, float], MaxLength(1000)]
    missed: Line | None = None
    """Conditions of its gate that the scores miss; None: it passed."""
    run_id: Name
    """Run that finished it: this one, or one that it continues."""

    def is_of(self, span: StageSpan) -> bool:
        """Tell whether this is the result of that stage."""
        return (self.stage, self.first_step, self.steps) == (span.name, span.first_step, span.steps)


def spans_of(stages: Sequence[tuple[str, int]]) -> tuple[StageSpan, ...]:
    """Return the span of each stage, from names and steps."""
    spans, first_step = list[StageSpan](), 0
    for number, (name, steps) in enumerate(stages):
        spans.append(StageSpan(name=name, number=number, first_step=first_step, steps=steps))
        first_step += steps
    return tuple(spans)


def read_records(box: Path) -> tuple[StageRecord, ...]:
    """Read the results of the finished stages; none where there are none, or they are malformed."""
    try:
        return read_json(tuple[StageRecord, ...], (box / layout.STAGES).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ()


def finished_steps(box: Path) -> int:
    """Return the steps of the run in its finished stages; 0 where it has none."""
    return sum(record.steps for record in read_records(box))
