"""Stages: their order, the options of single stages, and the scores that each must reach. No torch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from vastrun.contract.limits import Count, Ge, Gt, Le
from vastrun.trainer.job.scores import lowest_floor, scores_by_task

StageName = Literal["operator", "refine", "distill", "steady"]

FORMER: Mapping[str, str | None] = {
    "operator": None,
    "refine": "operator",
    "distill": "refine",
    "steady": "operator",
}
"""Stages, each with the one whose weights it starts from; None: it starts from nothing."""

Schedule = Literal["cosine", "linear", "step", "constant"]


@dataclass(frozen=True, kw_only=True)
class GateConfig:
    """Scores that a stage must reach: a run whose stage misses one fails, and trains no further stage."""

    rollout_nrmse: Annotated[float, Gt(0)] | None = None
    """Largest `rollout_nrmse` that passes, for each task; None: any."""
    beats_baselines: bool = False
    """true: `rollout_nrmse` must be below that of every baseline, the fitted ones too, but our own solver."""
    helps: bool = False
    """true: the rollouts of a stage after `operator` must have a smaller error than the operator's."""


@dataclass(frozen=True, kw_only=True)
class StageOptimConfig:
    """Options of `train.optim` for one stage; None: those of `train.optim`."""

    lr: Annotated[float, Gt(0)] | None = None
    schedule: Schedule | None = None
    warmup: Annotated[float, Ge(0), Le(1)] | None = None
    weight_decay: Annotated[float, Ge(0)] | None = None


@dataclass(frozen=True, kw_only=True)
class StageConfig:
    """Options for one of several stages; None: those of `train`."""

    steps: Count | None = None
    unroll: Count | None = None
    checkpoint_every: Count | None = None
    optim: StageOptimConfig = field(default_factory=StageOptimConfig)
    gate: GateConfig | None = None


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
    error = scores.get("rollout_nrmse", math.inf)
    floor = lowest_floor({name: value for name, value in scores.items() if not name.startswith("solver_")})
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
