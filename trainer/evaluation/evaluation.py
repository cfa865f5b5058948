"""One task evaluated: the scores of all predictors, of the whole test set and at each parameter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from vastrun.contract.config import PARAMETERS, DataConfig, TrainConfig
from vastrun.contract.scores import flatten_scores
from vastrun.trainer.data import Task
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.evaluation.predictors import MOST_PARAMETERS, predictors_of, prior_of
from vastrun.trainer.evaluation.rollouts import roll_out
from vastrun.trainer.evaluation.scores import Scores, scores_of
from vastrun.trainer.models.operator import Operator

WHOLE = "all"
_MOST_EXAMPLES = 3


@dataclass(frozen=True, kw_only=True)
class Example:
    """A sample of the test set, on the CPU."""

    label: str
    """Its parameter, or its number where there is one parameter only."""
    truth: Tensor
    """(T + 1, K, *X): what is given, and what follows."""
    rollout: Tensor
    """(T, K, *X)"""


class TrainedModel(Protocol):
    """A model with all that it takes to evaluate it."""

    @property
    def config(self) -> TrainConfig: ...

    @property
    def ranks(self) -> Ranks: ...

    @property
    def tasks(self) -> Sequence[Task]: ...

    @property
    def operator(self) -> Operator: ...

    def autocast(self) -> AbstractContextManager:
        """Set the precision of a forward pass within."""
        ...

    def ema_weights(self) -> AbstractContextManager:
        """Use the best weights there are within."""
        ...


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The same on every rank."""

    task: str
    steady: bool
    samples: int
    scores: dict[str, dict[str, Scores]]
    """By part of the test set, first the whole; then by predictor: the model's `rollout` is always there."""
    spectra: Tensor
    """(3, K, R): see `Rollouts`."""
    examples: tuple[Example, ...]

    def numbers(self) -> dict[str, float]:
        """Return scores of the whole by one name each, as `rollout_nrmse`.

        All of the model's, the error of the others.
        JSON has no word for those that are not finite."""
        numbers = {
            f"{predictor}_{name}": value
            for predictor, scores in self.scores[WHOLE].items()
            for name, value in scores.numbers().items()
            if predictor == "rollout" or name == "nrmse"
        }
        return {name: value for name, value in numbers.items() if value is not None}


def evaluate(
    operator: Operator, number: int, data: DataConfig, task: Task, ranks: Ranks, beat: Callable[[], None]
) -> Evaluation:
    """Return the scores of a task, by its number, over all of its test set. All ranks take part."""
    test = task.test
    prior = prior_of(task, operator.scale(number), ranks)
    parts = parts_of(test.conditions.cpu(), data)
    shown = _shown(parts)
    rollouts = roll_out(
        operator,
        number,
        test,
        prior,
        ranks,
        beat,
        predictors=predictors_of(prior, steady=test.steady),
        examples=tuple(shown),
    )
    return Evaluation(
        task=data.task,
        steady=test.steady,
        samples=len(test),
        scores={label: scores_of(rollouts, rows) for label, rows in parts.items()},
        spectra=rollouts.spectra,
        examples=tuple(
            Example(label=label, truth=test.fields[row].cpu(), rollout=rollout)
            for (row, label), rollout in zip(shown.items(), rollouts.examples, strict=True)
        ),
    )


def flat(evaluations: Sequence[Evaluation]) -> dict[str, float]:
    """Return the numbers of all tasks."""
    return flatten_scores({each.task: each.numbers() for each in evaluations})


def parts_of(conditions: Tensor, data: DataConfig) -> Mapping[str, Tensor]:
    """Return numbers of samples by part: the whole, and each of a few conditions (N, C)."""
    parts = {WHOLE: torch.arange(len(conditions))}
    if not conditions.shape[1]:
        return parts
    different, which = conditions.unique(dim=0, return_inverse=True)
    if not 1 < len(different) <= MOST_PARAMETERS:
        return parts
    return parts | {
        _label_of(row, data): torch.nonzero(which == number).flatten() for number, row in enumerate(different)
    }


def _shown(parts: Mapping[str, Tensor]) -> dict[int, str]:
    """Return samples by number, with their labels: the first at each parameter, or the first ones."""
    by_parameter = {int(rows[0]): label for label, rows in parts.items() if label != WHOLE}
    if not by_parameter:
        return {number: f"sample {number}" for number in parts[WHOLE][:_MOST_EXAMPLES].tolist()}
    return dict(list(by_parameter.items())[-_MOST_EXAMPLES:])


def _label_of(conditions: Tensor, data: DataConfig) -> str:
    """Write `beta 0.4`; of a task that is not ours, the conditions as they are."""
    values = conditions.tolist()
    key = PARAMETERS.get(data.task)
    if key is None:
        return "conditions " + ", ".join(f"{value:.4g}" for value in values)
    return f"{key.removesuffix('s')} {10 ** values[0]:.4g}"
