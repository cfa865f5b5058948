"""Stage config: the options that single stages of `train.stages` have of their own. No torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from vastrun.contract.limits import Count, Ge, Gt, Le

Schedule = Literal["cosine", "linear", "step", "constant"]


@dataclass(frozen=True, kw_only=True)
class GateConfig:
    """Scores that a stage must reach: a run whose stage misses one fails, and trains no further stage."""

    rollout_nrmse: Annotated[float, Gt(0)] | None = None
    """Largest `rollout_nrmse` that passes, for each task; None: any."""
    beats_baselines: bool = False
    """true: `rollout_nrmse` must be below that of every baseline, the fitted ones too."""
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
