"""Stages: order, steps and gates of the stages that one run trains one after another. Standard library only.

The steps of a run count on through its stages: names of checkpoints, metrics and progress rise from the first
step of the first stage to the last step of the last one, and the step tells the stage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from vastrun.contract import layout
from vastrun.contract.outcome import Name, Step
from vastrun.contract.records import MaxLength, read_json
from vastrun.contract.scores import lowest_floor, scores_by_task
from vastrun.contract.stage_config import GateConfig

StageName = Literal["operator", "refine", "distill", "steady"]

FORMER: Mapping[str, str | None] = {
    "operator": None,
    "refine": "operator",
    "distill": "refine",
    "steady": "operator",
}
"""Stages, each with the one whose weights it starts from; None: it starts from nothing."""


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


def span_at(spans: Sequence[StageSpan], step: int) -> StageSpan:
    """Return the stage of the last of `step` steps; after more than all steps, the last stage."""
    return next((span for span in spans if step <= span.end_step), spans[-1])


def stage_text(spans: Sequence[StageSpan], step: int) -> str:
    """Return the stage after `step` steps, as `refine, stage 2 of 3`; empty where there is only one."""
    if len(spans) < 2:
        return ""
    span = span_at(spans, step)
    return f"{span.name}, stage {span.number + 1} of {len(spans)}"


def missed_gate(gate: GateConfig, stage: str, scores: Mapping[str, float]) -> str | None:
    """Return which of its conditions these scores miss, in one line; None: they pass."""
    faults = [
        f"{task}: {fault}" if task else fault
        for task, own in (scores_by_task(scores) or {"": {}}).items()
        for fault in _faults(gate, stage, own)
    ]
    return "; ".join(faults) or None


def _faults(gate: GateConfig, stage: str, scores: Mapping[str, float]) -> list[str]:
    """Return the missed conditions by the scores of one task. JSON has no infinity: that score is missing."""
    error, floor = scores.get("rollout_nrmse", math.inf), lowest_floor(scores)
    limit, faults = gate.rollout_nrmse, []
    if limit is not None and not error <= limit:
        faults.append(f"rollout_nrmse is {error:.4g}, the gate allows {limit:g}")
    if gate.beats_baselines and (floor is None or not error < floor.value):
        without = "no baseline was scored" if floor is None else f"{floor.name} has {floor.value:.4g}"
        faults.append(f"rollout_nrmse is {error:.4g}, and {without}")
    if gate.helps and FORMER.get(stage) is not None and scores.get("stage_helps") != 1.0:
        alone = scores.get("operator_nrmse", math.inf)
        faults.append(
            f"{stage} does not help: rollout_nrmse is {error:.4g}, the operator alone has {alone:.4g}"
        )
    return faults


def read_records(box: Path) -> tuple[StageRecord, ...]:
    """Read the results of the finished stages; none where there are none, or they are malformed."""
    try:
        found = read_json(tuple[StageRecord, ...], (box / layout.STAGES).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ()
    return tuple(found)


def finished_steps(box: Path) -> int:
    """Return the steps of the run in its finished stages; 0 where it has none."""
    return sum(record.steps for record in read_records(box))


def as_dicts(records: Sequence[StageRecord]) -> list[dict[str, Any]]:
    """Return the records as JSON values."""
    return [dict(vars(record)) for record in records]
