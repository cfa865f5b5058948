"""Scores: what the errors of a predictor come to, over a test set or a part of it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from vastrun.trainer.evaluation.metrics import MEASURES
from vastrun.trainer.evaluation.rollouts import Rollouts


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Of one predictor. What is no ratio is in physical units; infinite where a rollout ran away."""

    nrmse: float
    """Mean over samples, frames and channels of: root mean square of the error, over that of what is true."""
    nrmse_median: float
    nrmse_pooled: float
    """All squared errors together over all squared values together."""
    rmse: float
    """The mean without the ratio."""
    boundary_rmse: float
    """The same of the outermost points."""
    conservation_rmse: float
    """Of the error's mean over space: how much is made or lost of what the field counts."""
    max_error: float
    spectrum_low: float
    """Amplitudes of the error: of wavenumbers below 4."""
    spectrum_mid: float
    """From 4 to 11."""
    spectrum_high: float
    """From 12 on."""
    diverged: int
    """Samples whose prediction is no number, or too large for one, somewhere."""
    nrmse_by_frame: tuple[float, ...]

    def numbers(self) -> dict[str, float | None]:
        """Return all but the curve, by name; None: not finite."""
        return {
            name: value if math.isfinite(value) else None
            for name, value in asdict(self).items()
            if name != "nrmse_by_frame"
        }


def scores_of(rollouts: Rollouts, samples: Tensor) -> dict[str, Scores]:
    """Return scores by predictor, of some of the test set, by number."""
    sizes = rollouts.sizes[samples].clamp_min(_SMALLEST)
    return {name: _scores(sizes, errors[:, samples]) for name, errors in rollouts.errors.items()}


_SMALLEST = 1e-14
"""Mean square of what counts as zero."""


def _scores(sizes: Tensor, errors: Tensor) -> Scores:
    """Score sizes (N, T, K) and errors (M, N, T, K)."""
    # What is no number was too large for one on the way.
    of = dict(zip(MEASURES, errors.nan_to_num(nan=math.inf, posinf=math.inf, neginf=math.inf), strict=True))
    ratios = (of["square"] / sizes).sqrt()
    return Scores(
        nrmse=ratios.mean().item(),
        nrmse_median=ratios.median().item(),
        nrmse_pooled=(of["square"].sum() / sizes.sum()).sqrt().item(),
        rmse=_root_mean(of["square"]),
        boundary_rmse=_root_mean(of["edge"]),
        conservation_rmse=of["mean"].square().mean(dim=0).sqrt().mean().item(),
        max_error=of["highest"].max().item(),
        spectrum_low=_root_mean(of["low"]),
        spectrum_mid=_root_mean(of["mid"]),
        spectrum_high=_root_mean(of["high"]),
        diverged=int(torch.isinf(of["square"]).flatten(1).any(dim=1).sum()),
        nrmse_by_frame=tuple(ratios.mean(dim=(0, 2)).tolist()),
    )


def _root_mean(squares: Tensor) -> float:
    """Return the mean of the roots of all."""
    return squares.sqrt().mean().item()
