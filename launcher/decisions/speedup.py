"""Speed-up: how much faster several ranks train than one, and what they lose time with.

A step of n ranks would ideally take the nth part of a step of one rank. What it takes longer is divided by
a third measurement, of one rank alone with the nth part of the batch:

data          waiting for data
collectives   waiting for other ranks: beyond what one rank takes alone for its share of the batch. It
              includes what the ranks of one machine take from each other, such as memory bandwidth
fixed         work that does not shrink with the share: starting operations, the optimiser
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from vastrun.contract.config import MlflowConfig, WandbConfig
from vastrun.contract.limits import Ge, Le, MaxLen, MinLen
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.job_shape import shape_of

Bottleneck = Literal["none", "data", "collectives", "fixed", "unknown"]

GOOD_EFFICIENCY = 0.9
"""Efficiency from which on nothing counts as a limit."""
LOG_EVERY = 5
"""Steps between two measured values."""
_MIN_STEPS = 100_000
"""Planned steps of a measured training, which is stopped before."""

_Seconds = Annotated[float, Ge(0), Le(1e9)]
_Share = Annotated[float, Ge(0), Le(1)]


@dataclass(frozen=True, kw_only=True)
class StepSpeed:
    """Measured speed of one training."""

    steps: int
    """Steps that were measured."""
    step_s: float
    data: float
    """Share of the time in which rank 0 waited for data."""

    @property
    def busy_s(self) -> float:
        """Seconds of a step without the wait for data."""
        return self.step_s * (1 - self.data)


@dataclass(frozen=True, kw_only=True)
class SpeedupRow:
    """Speed of one number of ranks, with the shares of a step that keep it from the ideal one."""

    ranks: Annotated[int, Ge(1), Le(1024)]
    samples_per_s: Annotated[float, Ge(0), Le(1e15)]
    step_s: _Seconds
    speedup: Annotated[float, Ge(0), Le(1e6)]
    """Speed as a multiple of that of one rank."""
    efficiency: Annotated[float, Ge(0), Le(1e6)]
    """Speed-up divided by the number of ranks."""
    data: _Share
    collectives: _Share | None
    """Share of a step; None: not measured, for instance as one GPU does not hold the job."""
    fixed: _Share | None
    limit: Bottleneck
    """Reason for most of the lost time; `none`: the efficiency is at least 90 %. `unknown`: it is not the
    data, and one rank alone was not measured."""


@dataclass(frozen=True, kw_only=True)
class Speedup:
    """Measured speed-up of a job on one kind of GPU."""

    gpu: Annotated[str, MaxLen(100)]
    """Name of the GPUs; empty: CPU."""
    batch: Annotated[int, Ge(1), Le(1 << 40)]
    """Windows of a step over all ranks, the same for each number of ranks."""
    rows: Annotated[tuple[SpeedupRow, ...], MinLen(1), MaxLen(16)]

    def steps_per_s(self, ranks: int) -> float | None:
        """Return the measured speed; None: not measured."""
        return next((1 / row.step_s for row in self.rows if row.ranks == ranks and row.step_s), None)


def speedup_of(
    gpu: str, batch: int, speeds: Mapping[int, StepSpeed], alone: Mapping[int, StepSpeed]
) -> Speedup:
    """Compare the measurements, by number of ranks. `alone`: one rank with that part of the batch."""
    one = speeds[1]
    rows = [_row(ranks, batch, speed, one, alone.get(ranks)) for ranks, speed in sorted(speeds.items())]
    return Speedup(gpu=gpu, batch=batch, rows=tuple(rows))


def _row(ranks: int, batch: int, speed: StepSpeed, one: StepSpeed, share: StepSpeed | None) -> SpeedupRow:
    share = one if ranks == 1 else share
    collectives = fixed = None
    if share is not None:
        collectives = _lost(speed.busy_s - share.busy_s, speed)
        fixed = _lost(share.busy_s - one.busy_s / ranks, speed)
    speedup = one.step_s / speed.step_s
    efficiency = speedup / ranks
    return SpeedupRow(
        ranks=ranks,
        samples_per_s=batch / speed.step_s,
        step_s=speed.step_s,
        speedup=speedup,
        efficiency=efficiency,
        data=speed.data,
        collectives=collectives,
        fixed=fixed,
        limit=_limit(efficiency, speed.data, collectives, fixed),
    )


def _limit(efficiency: float, data: float, collectives: float | None, fixed: float | None) -> Bottleneck:
    """Return the reason for most of the lost time."""
    if efficiency >= GOOD_EFFICIENCY and data < 1 - GOOD_EFFICIENCY:
        return "none"
    if collectives is None or fixed is None:
        return "data" if data >= (1 - efficiency) / 2 else "unknown"
    lost: dict[Bottleneck, float] = {"data": data, "collectives": collectives, "fixed": fixed}
    return max(lost, key=lambda name: lost[name])


def _lost(seconds: float, speed: StepSpeed) -> float:
    """Return the part of a step, without what is only noise below zero."""
    return max(0.0, min(1.0, seconds / speed.step_s))


def rank_counts(spec: JobSpec) -> list[int]:
    """Return 1, 2, 4 ... up to the ranks of the job, which come last, as far as they divide its batch."""
    assert spec.train is not None
    max_ranks = spec.ranks_per_node
    counts = {1 << power for power in range(max_ranks.bit_length()) if 1 << power <= max_ranks} | {max_ranks}
    return sorted(count for count in counts if spec.train.global_batch % count == 0)


def measured_job(spec: JobSpec, ranks: int, batch: int) -> JobSpec:
    """Return the job with `ranks` ranks on one machine, as it is measured: without trackers and pictures.

    It does more steps than are measured, and is stopped before them.
    """
    assert spec.train is not None
    train = replace(
        spec.train,
        batch=batch,
        steps=max(spec.train.steps, _MIN_STEPS),
        strategy="auto" if ranks == 1 else spec.train.strategy,
        micro_batch=None if spec.train.micro_batch is None else min(spec.train.micro_batch, batch // ranks),
        log_every=LOG_EVERY,
        evaluate_every=None,
        checkpoint_every=_MIN_STEPS,
        wandb=WandbConfig(mode="off"),
        mlflow=MlflowConfig(mode="off"),
        tensorboard=False,
        plots=False,
        profile=None,
    )
    resources = replace(spec.resources, gpus=ranks) if spec.resources.gpus else spec.resources
    return replace(spec, ranks=ranks, resources=resources, train=train)


def step_speed(records: Sequence[Mapping[str, float]]) -> StepSpeed | None:
    """Return the speed by records of a training's metrics; None: too few.

    The first two do not count: they contain the start, the compilation and the first allocations.
    """
    timed = [record for record in records if "at" in record][2:]
    if len(timed) < 2:
        return None
    first, last = timed[0], timed[-1]
    steps, seconds = int(last["step"] - first["step"]), last["at"] - first["at"]
    if steps <= 0 or seconds <= 0:
        return None
    waits = [record.get("data_wait", 0.0) for record in timed[1:]]
    return StepSpeed(steps=steps, step_s=seconds / steps, data=max(0.0, min(1.0, sum(waits) / len(waits))))


def measured_s(records: Sequence[Mapping[str, float]]) -> float:
    """Return the seconds of training that the records measure."""
    speed = step_speed(records)
    return 0.0 if speed is None else speed.steps * speed.step_s


def speedup_key(spec: JobSpec) -> str:
    """Return a digest of the work of a job's steps, by which its speed-ups are found."""
    return shape_of(replace(spec, ranks=None, nodes=1))
