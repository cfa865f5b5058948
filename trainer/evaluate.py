"""The model's worth: full rollouts over the test set, in physical units, beside what persistence scores."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from trainer.data.trajectories import Trajectories
from trainer.dist import Ranks
from trainer.models.operator import Operator

_CHUNK = 256
_SUMS = 4


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Normalised root mean square errors; 1 is as bad as predicting zero."""

    rollout_nrmse: float
    """Mean of the ratios of all frames, each predicted from the prediction before it."""
    rollout_nrmse_median: float
    rollout_nrmse_pooled: float
    """All errors together over all values together."""
    one_step_nrmse: float
    """Each frame predicted from the true one before it."""
    persistence_nrmse: float
    """The floor: every frame is predicted to be like the first."""

    def finite(self) -> dict[str, float]:
        """By name; JSON has no word for the others."""
        return {name: value for name, value in asdict(self).items() if math.isfinite(value)}

    def __str__(self) -> str:
        return (
            f"rollout nRMSE {self.rollout_nrmse:.4f} (median {self.rollout_nrmse_median:.4f}, "
            f"pooled {self.rollout_nrmse_pooled:.4f}), one step {self.one_step_nrmse:.4f}; "
            f"{self.persistence_nrmse / self.rollout_nrmse:.1f}x better than persistence "
            f"({self.persistence_nrmse:.4f})"
        )


def evaluate(
    operator: Operator, task: int, test: Trajectories, ranks: Ranks, beat: Callable[[], None]
) -> Scores:
    """The scores of a task over all of `test`. Every rank rolls out its share; the sums meet on all of them.

    The shares are equally large, so that all ranks take part in the same gathers of weights: what is missing
    from the last ones is made up for by the last trajectory, which counts once.
    """
    operator.eval()
    rank, world_size = ranks.rank.rank, ranks.rank.world_size
    total = world_size * math.ceil(len(test) / world_size)
    sums = torch.zeros(_SUMS, total, test.frames - 1, test.channels, dtype=torch.float64)
    for rows in torch.arange(rank, total, world_size).split(_CHUNK):
        beat()
        chosen = rows.clamp_max(len(test) - 1).to(test.fields.device)
        sums[:, rows] = _sums(operator, task, test.fields[chosen], test.conditions[chosen]).cpu()
    operator.train()
    return _scores(ranks.total(sums)[:, : len(test)])


@torch.no_grad()
def _sums(operator: Operator, task: int, fields: Tensor, conditions: Tensor) -> Tensor:
    """(4, N, T - 1, K): squares of target and of errors of rollout, one step and floor, over space."""
    scale = operator.scale(task)
    u = fields[:, 0]
    floor = scale.mean[1].expand_as(u) if scale.steady else u
    sums = []
    for before, target in zip(fields[:, :-1].unbind(1), fields[:, 1:].unbind(1), strict=True):
        u = operator(u, conditions, task)
        one_step = operator(before, conditions, task)
        errors = (target, u - target, one_step - target, floor - target)
        sums.append(torch.stack([error.double().square().flatten(2).sum(dim=2) for error in errors]))
    return torch.stack(sums, dim=2)


def _scores(sums: Tensor) -> Scores:
    target, rollout, one_step, persistence = sums
    target = target.clamp_min(1e-12)
    ratios = (rollout / target).sqrt()
    return Scores(
        rollout_nrmse=ratios.mean().item(),
        rollout_nrmse_median=ratios.median().item(),
        rollout_nrmse_pooled=(rollout.sum() / target.sum()).sqrt().item(),
        one_step_nrmse=(one_step / target).sqrt().mean().item(),
        persistence_nrmse=(persistence / target).sqrt().mean().item(),
    )
