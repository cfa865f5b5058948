"""Validation: rollouts of held-out samples at intervals during the training.

Never of the test set: choosing the best of many checkpoints by it would be training on it.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import torch

from vastrun.contract import layout
from vastrun.trainer import data
from vastrun.trainer.data.trajectories import Trajectories
from vastrun.trainer.engine.session import Session
from vastrun.trainer.errors import ConfigError
from vastrun.trainer.evaluation.predictors import applicable_predictors, compute_prior, with_baseline
from vastrun.trainer.evaluation.rollouts import EvaluationStopped, beat_with_stop_vote, roll_out
from vastrun.trainer.evaluation.scores import scores_of
from vastrun.trainer.job.data_config import DataConfig
from vastrun.trainer.job.scores import FLOORS, flatten_scores
from vastrun.trainer.loading.training_set import read_frames, spaced
from vastrun.trainer.models.spectral_operator import SpectralOperator


@dataclass(frozen=True, kw_only=True)
class ValidationScores:
    """Scores of one validation, the same on all ranks."""

    scores: dict[str, float]
    """nRMSE of the rollout and of the baselines, by name as in the final record."""
    nrmse: float
    """nRMSE of the rollouts, mean over the tasks; infinite when one diverged."""


class Validation:
    """Validation sets of all tasks, on the device, and their priors."""

    def __init__(self, session: Session, beat: Callable[[], None] = lambda: None) -> None:
        """Raises ConfigError when a task has no held-out samples, DataError when they cannot be read."""
        ranks = session.ranks
        self._held_out = [_read(config, session) for config in session.config.data]
        self._priors = [
            with_baseline(compute_prior(task, ranks.device), task, beat) for task in session.tasks
        ]

    def evaluate(
        self, session: Session, beat: Callable[[], None], stop_asked: Callable[[], bool]
    ) -> ValidationScores:
        """Evaluate the model without changing it. All ranks take part. Raises EvaluationStopped."""
        beat = beat_with_stop_vote(session.ranks, beat, stop_asked)
        # The same weights as in the final evaluation: others would choose another best checkpoint.
        with session.ema_weights(), session.autocast():
            found = [self._evaluate_task(session, number, beat) for number in range(len(self._held_out))]
        names = [config.task for config in session.config.data]
        return ValidationScores(
            scores=flatten_scores(dict(zip(names, found, strict=True))),
            nrmse=sum(own["rollout_nrmse"] for own in found) / len(found),
        )

    def _evaluate_task(self, session: Session, number: int, beat: Callable[[], None]) -> dict[str, float]:
        """Return the nRMSE of rollout and baselines on one task."""
        held_out, prior = self._held_out[number], self._priors[number]
        known = applicable_predictors(prior, steady=held_out.steady)
        predictors = [name for name in known if name in ("rollout", *FLOORS)]
        rollouts = roll_out(
            session.operator, number, held_out, prior, session.ranks, beat, predictors=predictors
        )
        found = scores_of(rollouts, torch.arange(len(held_out)))
        return {f"{name}_nrmse": own.nrmse for name, own in found.items()}


def keep_better_state(session: Session, beat: Callable[[], None], stop_asked: Callable[[], bool]) -> None:
    """Keep the linear map that the model began as, where it has the lower error than the trained model.

    By trajectories held out for validation, or of the training set. A stop leaves it to the next start.
    """
    operator, ranks, task, config = session.operator, session.ranks, session.tasks[0], session.config.data[0]
    if not isinstance(operator, SpectralOperator) or (train := task.train).steady:
        return
    if config.validation:
        chosen = _read(config, session)
    else:
        values = train.frames * train.channels * math.prod(train.grid)
        own = read_frames(task, spaced(len(train), min(64, _MAX_VALUES // values)), train.frames)
        static = operator.domains[0].static
        chosen = Trajectories(fields=own.fields, conditions=own.conditions, static=static).to(ranks.device)
    prior, errors = compute_prior(task, ranks.device), list[float]()
    beat = beat_with_stop_vote(ranks, beat, stop_asked)
    with suppress(EvaluationStopped), session.ema_weights(), session.autocast():
        for corrected in (0, 1):
            operator.linear.corrected.fill_(corrected)
            found = roll_out(operator, 0, chosen, prior, ranks, beat, predictors=["rollout"])
            errors.append(scores_of(found, torch.arange(len(chosen)))["rollout"].nrmse)
    is_map_better = len(errors) == 2 and errors[0] < errors[1]
    operator.linear.corrected.fill_(not is_map_better)
    if is_map_better and ranks.rank.is_first:
        nrmse = "rollout nRMSE {:.3g} and {:.3g}".format(*errors)
        text = "the fitted linear map alone is better than the trained model"
        print(f"{text}: {nrmse} on {len(chosen)} trajectories", flush=True)


_MAX_VALUES = 1 << 25


def _read(config: DataConfig, session: Session) -> Trajectories:
    rank = session.ranks.rank
    held_out = data.validation(config, rank.box / layout.DATA, rank.box / layout.CODE)
    if held_out is None:
        raise ConfigError(
            f"train.evaluate_every: {config.task} has no samples held out for validation",
            reported_elsewhere=not rank.is_first,
        )
    return held_out.to(session.ranks.device)
