"""Rollouts: what every predictor makes of a whole test set, measured in physical units by all ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from vastrun.trainer.data.trajectories import Trajectories
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.evaluation.metrics import MEASURES, FieldMetrics
from vastrun.trainer.evaluation.predictors import PREDICTORS, Case, Prior
from vastrun.trainer.models.operator import Operator

_MOST_AT_ONCE = 256
_VALUES_AT_ONCE = 1 << 20
_SPECTRA = 3


@dataclass(frozen=True, kw_only=True)
class Rollouts:
    """The same on every rank."""

    sizes: Tensor
    """(N, T, K): mean squares of what is to be predicted."""
    errors: dict[str, Tensor]
    """By predictor, (M, N, T, K): see `errors.MEASURES`."""
    spectra: Tensor
    """(3, K, R): of the last frame, the mean amplitude by ring: as it is, as rolled out, the difference."""
    examples: Tensor
    """(E, T, K, *X): the rollouts of the samples that were asked for."""


class Abandoned(Exception):
    """All ranks stop looking at the same frame: one of them was asked to stop."""


def until_asked_to_stop(
    ranks: Ranks, beat: Callable[[], None], stop_asked: Callable[[], bool]
) -> Callable[[], None]:
    """Return a beat for all ranks together, which raises Abandoned on all when one of them is to stop."""

    def beat_and_vote() -> None:
        beat()
        [stop] = ranks.all_reduce_max(float(stop_asked()))
        if stop:
            raise Abandoned

    return beat_and_vote


def roll_out(
    operator: Operator,
    task: int,
    test: Trajectories,
    prior: Prior,
    ranks: Ranks,
    beat: Callable[[], None],
    *,
    predictors: Sequence[str],
    examples: Sequence[int] = (),
) -> Rollouts:
    """Roll out all of `test`. Every rank does its share; the sums meet on all of them.

    The shares are equally large, so that all ranks take part in the same gathers of weights: what is missing
    from the last ones is made up for by the last trajectory, which counts once.
    """
    rank, world_size = ranks.rank.rank, ranks.rank.world_size
    total = world_size * math.ceil(len(test) / world_size)
    tally = _Tally(test, total, predictors, examples)
    size = max(1, min(_MOST_AT_ONCE, _VALUES_AT_ONCE // test.fields[0, 0].numel()))
    # The shapes are others than those of training: to compile for them takes longer than it saves.
    with _evaluating(operator), torch.no_grad(), torch.compiler.set_stance("force_eager"):
        for rows in torch.arange(rank, total, world_size).split(size):
            chosen = rows.clamp_max(len(test) - 1).to(test.fields.device)
            case = Case(operator=operator, task=task, conditions=test.conditions[chosen], prior=prior)
            tally.add(rows, test.fields[chosen], case, beat)
    return tally.shared(ranks)


@contextmanager
def _evaluating(operator: Operator) -> Iterator[None]:
    before = operator.training
    operator.eval()
    try:
        yield
    finally:
        operator.train(before)


class _Tally:
    """What one rank has measured so far; zero where others did."""

    def __init__(
        self, test: Trajectories, total: int, predictors: Sequence[str], examples: Sequence[int]
    ) -> None:
        self._count, self._predictors = len(test), tuple(predictors)
        self._gauge = FieldMetrics(test.grid, test.fields.device)
        each = (total, test.frames - 1, test.channels)
        self._sizes = torch.zeros(each, dtype=torch.float64)
        self._errors = torch.zeros(len(predictors), len(MEASURES), *each, dtype=torch.float64)
        self._spectra = torch.zeros(_SPECTRA, test.channels, self._gauge.rings.count, dtype=torch.float64)
        self._examples = torch.zeros(len(examples), *each[1:], *test.grid)
        self._places = {row: place for place, row in enumerate(examples)}

    def add(self, rows: Tensor, fields: Tensor, case: Case, beat: Callable[[], None]) -> None:
        """Predict those in `rows` frame by frame."""
        said = dict.fromkeys(self._predictors, fields[:, 0])
        for frame, (before, target) in enumerate(
            zip(fields[:, :-1].unbind(1), fields[:, 1:].unbind(1), strict=True)
        ):
            beat()
            self._sizes[rows, frame] = target.double().square().flatten(2).mean(2).cpu()
            for place, name in enumerate(self._predictors):
                said[name] = PREDICTORS[name](case, said[name], before).float()
                self._errors[place, :, rows, frame] = self._gauge.measure(said[name] - target).cpu()
            self._keep(rows, frame, said["rollout"])
        self._add_spectra(rows, target, said["rollout"])

    def shared(self, ranks: Ranks) -> Rollouts:
        """Sum over all ranks.

        Each has measured the last one as often as it was repeated, and it counts once.
        """
        errors = ranks.all_reduce_sum(self._errors)[:, :, : self._count]
        return Rollouts(
            sizes=ranks.all_reduce_sum(self._sizes)[: self._count],
            errors=dict(zip(self._predictors, errors, strict=True)),
            spectra=ranks.all_reduce_sum(self._spectra) / self._count,
            examples=ranks.all_reduce_sum(self._examples),
        )

    def _keep(self, rows: Tensor, frame: int, prediction: Tensor) -> None:
        for row, field in zip(rows.tolist(), prediction, strict=True):
            if row in self._places:
                self._examples[self._places[row], frame] = field.cpu()

    def _add_spectra(self, rows: Tensor, target: Tensor, prediction: Tensor) -> None:
        once = (rows < self._count).to(target.device)
        for place, fields in enumerate((target, prediction, prediction - target)):
            power = self._gauge.rings.power(fields[once].double())
            self._spectra[place] += power.sqrt().sum(0).cpu()
