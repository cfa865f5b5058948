"""Validation: rollouts of held-out samples at intervals during the training.

Never of the test set: choosing the best of many checkpoints by it would be training on it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from vastrun.contract import layout
from vastrun.contract.errors import ConfigError
from vastrun.contract.scores import FLOORS, flatten_scores
from vastrun.trainer import data
from vastrun.trainer.data import Task
from vastrun.trainer.data.trajectories import Trajectories
from vastrun.trainer.engine.session import Session
from vastrun.trainer.evaluation.predictors import applicable_predictors, compute_prior, with_baseline
from vastrun.trainer.evaluation.rollouts import EvaluationStopped, beat_with_stop_vote, roll_out
from vastrun.trainer.evaluation.scores import scores_of
from vastrun.trainer.job.data_config import DataConfig
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
        assert session.config.evaluate_every is not None
        self.every = session.config.evaluate_every
        """Steps between two validations."""
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
    """Keep the linear map that a network began as, where it has the lower error than the trained network.

    That is told by the trajectories held out for validation; without any, by those of the training set. All
    ranks take part. A stop leaves the choice to the next start.
    """
    ranks, beat = session.ranks, beat_with_stop_vote(session.ranks, beat, stop_asked)
    for number, (task, network) in enumerate(zip(session.tasks, session.objective.networks, strict=False)):
        if not isinstance(network, SpectralOperator) or task.train.steady:
            continue
        config, corrected, errors = session.config.data[number], network.linear.corrected, list[float]()
        chosen = _read(config, session) if config.validation else _training_trajectories(task, ranks.device)
        prior = compute_prior(task, ranks.device)
        try:
            for state in (0, 1):
                corrected.fill_(state)
                with session.ema_weights(), session.autocast():
                    found = roll_out(
                        session.operator, number, chosen, prior, ranks, beat, predictors=["rollout"]
                    )
                errors.append(scores_of(found, torch.arange(len(chosen)))["rollout"].nrmse)
        except EvaluationStopped:
            errors = [math.inf, math.inf]
        corrected.fill_(errors[0] >= errors[1])
        if errors[0] < errors[1] and ranks.rank.is_first:
            compared = f"{errors[0]:.3g} and {errors[1]:.3g} in rollout nRMSE on {len(chosen)} trajectories"
            print(f"the fitted linear map alone is better than the trained model: {compared}", flush=True)


def _training_trajectories(task: Task, device: torch.device) -> Trajectories:
    train = task.train
    size = train.frames * train.channels * math.prod(train.grid)
    read = read_frames(task, spaced(len(train), min(_MAX_TRAJECTORIES, _MAX_VALUES // size)), train.frames)
    static = getattr(train, "static", 0)  # a task in a user's code may be older
    return Trajectories(fields=read.fields.to(device), conditions=read.conditions.to(device), static=static)


_MAX_TRAJECTORIES, _MAX_VALUES = 64, 1 << 25
"""Largest number of training trajectories to choose a state by, and of their values."""


def _read(config: DataConfig, session: Session) -> Trajectories:
    rank = session.ranks.rank
    held_out = data.validation(config, rank.box / layout.DATA, rank.box / layout.CODE)
    if held_out is None:
        raise ConfigError(
            f"train.evaluate_every: {config.task} has no samples held out for validation",
            reported_elsewhere=not rank.is_first,
        )
    return held_out.to(session.ranks.device)
