"""Evaluation of one task: the scores of all predictors, over the whole test set and at each parameter."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

from vastrun.trainer.data import Task
from vastrun.trainer.data.trajectories import Trajectories
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.engine.session import Session
from vastrun.trainer.evaluation import predictors
from vastrun.trainer.evaluation.model_loader import LoadedModel
from vastrun.trainer.evaluation.planes import Coordinates, SpaceAxis, planes_of
from vastrun.trainer.evaluation.rollouts import CONSERVED, Rollouts, roll_out
from vastrun.trainer.evaluation.scores import Scores, scores_of
from vastrun.trainer.job.data_config import PARAMETERS, DataConfig
from vastrun.trainer.job.scores import flatten_scores
from vastrun.trainer.loading.training_set import MAX_PARAMETERS, SeenConditions, count_seen_conditions
from vastrun.trainer.models.operator import Operator

WHOLE, UNSEEN = "all", "unseen"
"""Parts of the test set: all samples at parameters that were trained, and all at others."""
_MAX_EXAMPLES = 3


@dataclass(frozen=True, kw_only=True)
class Example:
    """Sample of the test set with its rollout, in one plane, on the CPU."""

    label: str
    """Parameter of the sample, or its number when there is a single parameter; and where the plane is."""
    axes: tuple[SpaceAxis, ...]
    """Axes of the plane."""
    truth: Tensor
    """(T + 1, K, *P): the first frame, and the true later ones."""
    rollout: Tensor
    """(T, K, *P)"""


TrainedModel: TypeAlias = Session | LoadedModel
"""Model with everything that an evaluation needs."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Scores, spectra and examples of one task, the same on every rank."""

    task: str
    steady: bool
    samples: int
    scores: dict[str, dict[str, Scores]]
    """Scores by part of the test set, the whole first, then by predictor; `rollout` is the model's.

    Samples at parameters that were not trained are in parts of their own, and not in the whole.
    """
    spectra: Tensor
    """(3, K, R): see `Rollouts.spectra`."""
    coordinates: Coordinates
    examples: tuple[Example, ...]
    """A few samples; the first one in each plane."""
    ms: Mapping[str, float] = field(default_factory=dict)
    """Milliseconds of a rollout by predictor."""
    one_parameter: bool = False
    """The inputs have one degree of freedom: no claim of learning can rest on them."""
    seen: SeenConditions | None = None
    """Test conditions that are in the training set; None: not compared."""

    def numbers(self) -> dict[str, float]:
        """Return the scores of the whole test set by names like `rollout_nrmse`.

        All finite scores of the model's rollout, the nRMSE of the other predictors, that at parameters that
        were not trained, and the number of test conditions that are in the training set.
        """
        numbers = {
            f"{predictor}_{name}": value
            for predictor, scores in self.scores[WHOLE].items()
            for name, value in scores.numbers().items()
            if predictor == "rollout" or name == "nrmse"
        }
        for predictor, own in self.scores.get(UNSEEN, {}).items():
            name = "unseen_nrmse" if predictor == "rollout" else f"unseen_{predictor}_nrmse"
            numbers[name] = own.numbers()["nrmse"]
        if self.one_parameter:
            numbers["one_parameter_set"] = 1.0
        if self.seen is not None:
            numbers["seen_conditions"] = self.seen.seen
        return {name: value for name, value in numbers.items() if value is not None}


def evaluate(
    operator: Operator, number: int, data: DataConfig, task: Task, ranks: Ranks, beat: Callable[[], None]
) -> Evaluation:
    """Evaluate a task, by its number, on its test set. All ranks take part."""
    test = task.test
    prior = predictors.with_baseline(predictors.compute_prior(task, ranks.device), task, beat)
    prior = predictors.with_rollouts(prior, task, data, beat)
    parts = parts_of(test.conditions.cpu(), data)
    shown = _choose_examples(parts)
    roll = partial(
        roll_out,
        operator,
        number,
        prior=prior,
        ranks=ranks,
        beat=beat,
        predictors=predictors.applicable_predictors(prior, steady=test.steady),
        conserved=CONSERVED.get(data.task),
    )
    rollouts = roll(test, examples=tuple(shown))
    coordinates = Coordinates.of(data, tuple(test.grid))
    scores = {label: scores_of(rollouts, rows) for label, rows in parts.items()}
    unseen = getattr(task, "unseen", None)  # a task in a user's code may be without
    if unseen is not None:
        elsewhere = roll(unseen)
        for label, rows in parts_of(unseen.conditions.cpu(), data).items():
            scores[UNSEEN if label == WHOLE else f"{UNSEEN} {label}"] = scores_of(elsewhere, rows)
    return Evaluation(
        task=data.task,
        steady=test.steady,
        samples=len(test),
        scores=scores,
        spectra=rollouts.spectra,
        ms=rollouts.ms,
        one_parameter=prior.one_parameter,
        coordinates=coordinates,
        examples=tuple(_examples(shown, test, rollouts, coordinates)),
        seen=count_seen_conditions(task, ranks, beat),
    )


def _examples(
    shown: Mapping[int, str], test: Trajectories, rollouts: Rollouts, coordinates: Coordinates
) -> Iterator[Example]:
    """Yield the first sample in each plane, and the others in the first one."""
    planes = planes_of(tuple(test.grid))
    for place, (row, label) in enumerate(shown.items()):
        for plane, rolled in zip(planes[: 1 if place else None], rollouts.examples, strict=False):
            yield Example(
                label=", ".join(filter(None, (label, plane.label(coordinates.axes)))),
                axes=tuple(coordinates.axes[axis] for axis in plane.shown),
                truth=plane.cut(test.fields[row, :, : rolled.shape[2]]).cpu(),
                rollout=rolled[place],
            )


def final_scores(evaluations: Sequence[Evaluation]) -> dict[str, float]:
    """Return the scores of all tasks by name."""
    return flatten_scores({each.task: each.numbers() for each in evaluations})


def parts_of(conditions: Tensor, data: DataConfig) -> Mapping[str, Tensor]:
    """Return the numbers of the samples of each part: the whole, and each of a few conditions (N, C)."""
    parts = {WHOLE: torch.arange(len(conditions))}
    if not conditions.shape[1]:
        return parts
    different, which = conditions.unique(dim=0, return_inverse=True)
    if not 1 < len(different) <= MAX_PARAMETERS:
        return parts
    return parts | {
        _label_of(row, data): torch.nonzero(which == number).flatten() for number, row in enumerate(different)
    }


def _choose_examples(parts: Mapping[str, Tensor]) -> dict[int, str]:
    """Return the examples' numbers and labels: the first sample at each parameter, or the first samples."""
    by_parameter = {int(rows[0]): label for label, rows in parts.items() if label != WHOLE}
    if not by_parameter:
        return {number: f"sample {number}" for number in parts[WHOLE][:_MAX_EXAMPLES].tolist()}
    return dict(list(by_parameter.items())[-_MAX_EXAMPLES:])


def _label_of(conditions: Tensor, data: DataConfig) -> str:
    """Return a label like `beta 0.4`; for a task without parameters, the raw conditions."""
    values = conditions.tolist()
    keys = PARAMETERS.get(data.task, ())
    if not keys:
        return "conditions " + ", ".join(f"{value:.4g}" for value in values)
    named = zip(keys, values, strict=False)
    return ", ".join(f"{key.removesuffix('s')} {10**value:.4g}" for key, value in named)
