"""Validation: now and then during a training, rollouts of samples that are kept back from it.

Never of the test set: whoever chooses the best of many checkpoints by it has trained on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from vastrun.contract import layout
from vastrun.contract.config import DataConfig
from vastrun.contract.errors import ConfigError
from vastrun.contract.scores import FLOORS, flatten_scores
from vastrun.trainer import data
from vastrun.trainer.data.trajectories import Trajectories
from vastrun.trainer.engine.session import Session
from vastrun.trainer.evaluation.predictors import Prior, predictors_of, prior_of
from vastrun.trainer.evaluation.rollouts import roll_out, until_asked_to_stop
from vastrun.trainer.evaluation.scores import scores_of


@dataclass(frozen=True, kw_only=True)
class ValidationScores:
    """What one look has found, the same on all ranks."""

    scores: dict[str, float]
    """As in the final record: the rollout's error and its floors, task by task."""
    nrmse: float
    """Of the rollouts, in the mean over the tasks; infinite when one ran away."""


class Validation:
    """What is kept back, on the device, and what is known of it without the model."""

    def __init__(self, session: Session) -> None:
        """Raises ConfigError when a task keeps nothing back, DataError when it cannot be read."""
        ranks = session.ranks
        assert session.config.evaluate_every is not None
        self.every = session.config.evaluate_every
        """Steps between two looks."""
        self._kept_back = [_read(config, session) for config in session.config.data]
        self._priors: list[Prior] = [
            prior_of(task, session.operator.scale(number), ranks) for number, task in enumerate(session.tasks)
        ]

    def look(
        self, session: Session, beat: Callable[[], None], stop_asked: Callable[[], bool]
    ) -> ValidationScores:
        """Measure how well the model does; nothing of it changes.

        All ranks look together. Raises Abandoned.
        """
        beat = until_asked_to_stop(session.ranks, beat, stop_asked)
        # The weights that the final evaluation uses: others would choose another best checkpoint.
        with session.ema_weights(), session.autocast():
            found = [self._of(session, number, beat) for number in range(len(self._kept_back))]
        names = [config.task for config in session.config.data]
        return ValidationScores(
            scores=flatten_scores(dict(zip(names, found, strict=True))),
            nrmse=sum(own["rollout_nrmse"] for own in found) / len(found),
        )

    def _of(self, session: Session, number: int, beat: Callable[[], None]) -> dict[str, float]:
        """Measure one task."""
        kept_back, prior = self._kept_back[number], self._priors[number]
        known = predictors_of(prior, steady=kept_back.steady)
        predictors = [name for name in known if name in ("rollout", *FLOORS)]
        rollouts = roll_out(
            session.operator, number, kept_back, prior, session.ranks, beat, predictors=predictors
        )
        found = scores_of(rollouts, torch.arange(len(kept_back)))
        return {f"{name}_nrmse": own.nrmse for name, own in found.items()}


def _read(config: DataConfig, session: Session) -> Trajectories:
    rank = session.ranks.rank
    kept_back = data.validation(config, rank.box / layout.DATA, rank.box / layout.CODE)
    if kept_back is None:
        raise ConfigError(
            f"train.evaluate_every: {config.task} keeps nothing back to be evaluated during the training",
            reported_elsewhere=not rank.is_first,
        )
    return kept_back.to(session.ranks.device)
