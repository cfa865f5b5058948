"""Comparison: what a stage makes of the operator that it builds upon, and what that costs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from vastrun.contract.scores import flatten_scores
from vastrun.trainer.data.trajectories import Trajectories
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.evaluation.evaluation import WHOLE, Evaluation, TrainedModel
from vastrun.trainer.evaluation.predictors import prior_of
from vastrun.trainer.evaluation.rollouts import roll_out
from vastrun.trainer.evaluation.scores import Scores, scores_of
from vastrun.trainer.models.operator import Operator
from vastrun.trainer.stages.sampled import SampledOperator

_BANDS = ("spectrum_low", "spectrum_mid", "spectrum_high")
_AT_ONCE = 64
_ROUNDS = 5


@dataclass(frozen=True, kw_only=True)
class Performance:
    """Of the stage, or of the operator alone."""

    scores: Scores
    calls: int
    """Of networks, for a frame."""
    ms: float
    """For a frame of a few samples at once, the quickest of a few times, on the slowest rank."""

    def __str__(self) -> str:
        bands = " ".join(f"{getattr(self.scores, band):.2g}" for band in _BANDS)
        return (
            f"rollout nRMSE {self.scores.nrmse:.4g}, error at low, mid and high wavenumbers {bands}, "
            f"{self.calls} network calls and {self.ms:.1f} ms a frame"
        )


@dataclass(frozen=True, kw_only=True)
class StageComparison:
    """On one task."""

    task: str
    stage: str
    ours: Performance
    alone: Performance
    spread: float | None
    """Deviation of the draws as a share of what is true, mean over samples; None: there is one draw."""

    @property
    def helps(self) -> bool:
        """A rollout is nearer to what is true than the operator's."""
        return self.ours.scores.nrmse < self.alone.scores.nrmse

    def numbers(self) -> dict[str, float]:
        """Return the numbers by name; JSON has no word for what is not finite."""
        numbers = {
            "stage_helps": float(self.helps),
            "stage_calls": self.ours.calls,
            "stage_ms": self.ours.ms,
            "stage_spread": math.nan if self.spread is None else self.spread,
            "operator_calls": self.alone.calls,
            "operator_ms": self.alone.ms,
            "operator_nrmse": self.alone.scores.nrmse,
            **{f"operator_{band}": getattr(self.alone.scores, band) for band in _BANDS},
        }
        return {name: value for name, value in numbers.items() if math.isfinite(value)}

    def __str__(self) -> str:
        verdict = "helps" if self.helps else "does NOT help"
        spread = "" if self.spread is None else f"; its draws spread by {self.spread:.4g}"
        return f"{self.task}: {self.stage} {verdict}: {self.ours}; the operator alone: {self.alone}{spread}"


def compare(
    trained: TrainedModel, evaluations: Sequence[Evaluation], beat: Callable[[], None]
) -> list[StageComparison]:
    """Make a comparison for each task, on every rank; none of the first stage. All ranks take part."""
    model = trained.operator
    if not isinstance(model, SampledOperator):
        return []
    comparisons = []
    for number, (task, evaluation) in enumerate(zip(trained.tasks, evaluations, strict=True)):
        alone = _scores(model.operator, number, trained, beat)
        # As in rollouts, nothing compiles for shapes that training has not.
        with torch.no_grad(), torch.compiler.set_stance("force_eager"):
            pair = (model, model.operator)
            ms, ms_alone = (_ms(each, number, task.test, trained.ranks, beat) for each in pair)
            spread = _spread(model, number, task.test)
        comparisons.append(
            StageComparison(
                task=evaluation.task,
                stage=trained.config.stage,
                ours=Performance(scores=evaluation.scores[WHOLE]["rollout"], calls=model.calls, ms=ms),
                alone=Performance(scores=alone, calls=1, ms=ms_alone),
                spread=spread,
            )
        )
    return comparisons


def flat(comparisons: Sequence[StageComparison]) -> dict[str, float]:
    """Return the numbers of all tasks, as the final record has them."""
    return flatten_scores({each.task: each.numbers() for each in comparisons})


def _scores(operator: Operator, number: int, trained: TrainedModel, beat: Callable[[], None]) -> Scores:
    task, ranks = trained.tasks[number], trained.ranks
    prior = prior_of(task, operator.scale(number), ranks)
    rollouts = roll_out(operator, number, task.test, prior, ranks, beat, predictors=("rollout",))
    return scores_of(rollouts, torch.arange(len(task.test)))["rollout"]


def _ms(operator: Operator, number: int, test: Trajectories, ranks: Ranks, beat: Callable[[], None]) -> float:
    u, conditions = test.fields[:_AT_ONCE, 0], test.conditions[:_AT_ONCE]
    times = []
    for _ in range(_ROUNDS):
        beat()
        begin = time.perf_counter()
        answer = operator(u, conditions, number)
        if answer.device.type == "cuda":
            torch.cuda.synchronize(answer.device)
        times.append(time.perf_counter() - begin)
    [slowest] = ranks.all_reduce_max(min(times))
    return 1000 * slowest


def _spread(model: SampledOperator, number: int, test: Trajectories) -> float | None:
    """Measure the spread of the answers to the first frame of a few samples."""
    draws = model.draws(test.fields[:_AT_ONCE, 0], test.conditions[:_AT_ONCE], number)
    if len(draws) == 1:
        return None
    sizes = test.fields[:_AT_ONCE, 1].flatten(1).norm(dim=1)
    return (draws.var(dim=0).sum(dim=tuple(range(1, draws.ndim - 1))).sqrt() / sizes).mean().item()
