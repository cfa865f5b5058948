"""Comparison: accuracy and cost of a stage against its operator alone."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from vastrun.trainer.data.samples import rows_at_once
from vastrun.trainer.data.trajectories import Trajectories
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.evaluation.evaluation import WHOLE, Evaluation, TrainedModel
from vastrun.trainer.evaluation.predictors import compute_prior
from vastrun.trainer.evaluation.rollouts import roll_out
from vastrun.trainer.evaluation.scores import Scores, scores_of
from vastrun.trainer.job.scores import flatten_scores
from vastrun.trainer.models.operator import Operator
from vastrun.trainer.stages.sampled import SampledOperator

_BANDS = ("spectrum_low", "spectrum_mid", "spectrum_high")


@dataclass(frozen=True, kw_only=True)
class Performance:
    """Accuracy and cost of a stage, or of the operator alone."""

    scores: Scores
    calls: int
    """Network calls per frame."""
    ms: float
    """Milliseconds per frame of a small batch: the fastest of a few runs, on the slowest rank."""

    def __str__(self) -> str:
        values = [getattr(self.scores, band) for band in _BANDS]
        bands = " ".join("-" if math.isnan(value) else f"{value:.2g}" for value in values)
        return (
            f"rollout nRMSE {self.scores.nrmse:.4g}, error at low, mid and high wavenumbers {bands}, "
            f"{self.calls} network calls and {self.ms:.1f} ms a frame"
        )


@dataclass(frozen=True, kw_only=True)
class StageComparison:
    """Comparison on one task."""

    task: str
    stage: str
    with_stage: Performance
    operator_alone: Performance
    spread: float | None
    """Deviation of the draws relative to the truth, mean over samples; None: there is a single draw."""

    @property
    def helps(self) -> bool:
        """True when the stage's rollouts have a smaller error than the operator's."""
        return self.with_stage.scores.nrmse < self.operator_alone.scores.nrmse

    def numbers(self) -> dict[str, float]:
        """Return the finite numbers by name; JSON cannot hold others."""
        numbers = {
            "stage_helps": float(self.helps),
            "stage_calls": self.with_stage.calls,
            "stage_ms": self.with_stage.ms,
            "stage_spread": math.nan if self.spread is None else self.spread,
            "operator_calls": self.operator_alone.calls,
            "operator_ms": self.operator_alone.ms,
            "operator_nrmse": self.operator_alone.scores.nrmse,
            **{f"operator_{band}": getattr(self.operator_alone.scores, band) for band in _BANDS},
        }
        return {name: value for name, value in numbers.items() if math.isfinite(value)}

    def __str__(self) -> str:
        verdict = "helps" if self.helps else "does NOT help"
        spread = "" if self.spread is None else f"; its draws spread by {self.spread:.4g}"
        alone = f"the operator alone: {self.operator_alone}"
        return f"{self.task}: {self.stage} {verdict}: {self.with_stage}; {alone}{spread}"


def compare(
    trained: TrainedModel, evaluations: Sequence[Evaluation], beat: Callable[[], None]
) -> list[StageComparison]:
    """Compare on each task; empty for the first stage. All ranks take part and get the same result."""
    model = trained.operator
    if not isinstance(model, SampledOperator):
        return []
    comparisons = []
    for number, (task, evaluation) in enumerate(zip(trained.tasks, evaluations, strict=True)):
        prior = compute_prior(task, trained.ranks.device)
        rollouts = roll_out(
            model.operator, number, task.test, prior, trained.ranks, beat, predictors=("rollout",)
        )
        operator_alone = scores_of(rollouts, torch.arange(len(task.test)))["rollout"]
        # As in rollouts, nothing is compiled for shapes that training does not have.
        with torch.no_grad(), torch.compiler.set_stance("force_eager"):
            pair = (model, model.operator)
            ms, ms_alone = (_ms(each, number, task.test, trained.ranks, beat) for each in pair)
            spread = _spread(model, number, task.test)
        comparisons.append(
            StageComparison(
                task=evaluation.task,
                stage=trained.config.stage,
                with_stage=Performance(scores=evaluation.scores[WHOLE]["rollout"], calls=model.calls, ms=ms),
                operator_alone=Performance(scores=operator_alone, calls=1, ms=ms_alone),
                spread=spread,
            )
        )
    return comparisons


def final_scores(comparisons: Sequence[StageComparison]) -> dict[str, float]:
    """Return the numbers of all tasks by name, as in the final record."""
    return flatten_scores({each.task: each.numbers() for each in comparisons})


def _ms(operator: Operator, number: int, test: Trajectories, ranks: Ranks, beat: Callable[[], None]) -> float:
    size = _batch_size(test)
    u, conditions = test.fields[:size, 0], test.conditions[:size]
    times = []
    for _ in range(5):
        beat()
        begin = time.perf_counter()
        answer = operator(u, conditions, number)
        if answer.device.type == "cuda":
            torch.cuda.synchronize(answer.device)
        times.append(time.perf_counter() - begin)
    [slowest] = ranks.all_reduce_max(min(times))
    return 1000 * slowest


def _spread(model: SampledOperator, number: int, test: Trajectories) -> float | None:
    """Return the spread of the draws for the first frame of a few samples."""
    size = _batch_size(test)
    draws = model.draws(test.fields[:size, 0], test.conditions[:size], number)
    if len(draws) == 1:
        return None
    sizes = test.fields[:size, 1].flatten(1).norm(dim=1)
    return (draws.var(dim=0).sum(dim=tuple(range(1, draws.ndim - 1))).sqrt() / sizes).mean().item()


def _batch_size(test: Trajectories) -> int:
    return rows_at_once(test.fields[0, 0].numel(), max_rows=64)
