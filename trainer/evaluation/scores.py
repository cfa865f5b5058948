"""Scores: error measures of a predictor over a test set or a part of it."""

import math
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from vastrun.trainer.evaluation.metrics import BANDS, MEASURES
from vastrun.trainer.evaluation.rollouts import Rollouts


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Scores of one predictor, in physical units except for the nRMSEs; infinite when a rollout diverged."""

    nrmse: float
    """Root mean square of the error over that of the truth; mean over samples, frames and channels."""
    nrmse_median: float
    nrmse_pooled: float
    """Root of the sum of all squared errors over the sum of all squared true values."""
    rmse: float
    """Root mean square of the error, mean over samples, frames and channels."""
    boundary_rmse: float
    """RMSE over the boundary points."""
    conservation_rmse: float
    """RMSE of the spatial mean: the gain or loss of the conserved quantity."""
    max_error: float
    spectrum_low: float
    """Amplitude of the error at wavenumbers below 4; NaN where the grid has none, as in the other bands."""
    spectrum_mid: float
    """Amplitude of the error at wavenumbers from 4 to 11."""
    spectrum_high: float
    """Amplitude of the error at wavenumbers from 12 on."""
    diverged: int
    """Number of samples whose prediction is NaN or infinite anywhere."""
    nrmse_by_frame: tuple[float, ...]

    def numbers(self) -> dict[str, float | None]:
        """Return all scores but the curve, by name; None for one that is not finite."""
        return {
            name: value if math.isfinite(value) else None
            for name, value in asdict(self).items()
            if name != "nrmse_by_frame"
        }


def scores_of(rollouts: Rollouts, samples: Tensor) -> dict[str, Scores]:
    """Return the scores of each predictor over the given samples of the test set."""
    sizes = rollouts.sizes[samples].clamp_min(_MIN_SIZE)
    return {name: _scores(sizes, errors[:, samples]) for name, errors in rollouts.errors.items()}


_MIN_SIZE = 1e-14
"""Smallest mean square of a target, to avoid division by zero."""


def _scores(sizes: Tensor, errors: Tensor) -> Scores:
    """Score sizes (N, T, K) and errors (M, N, T, K)."""
    # NaN comes from an overflow: it counts as infinite. In a band without wavenumbers all is NaN.
    finite = errors.nan_to_num(nan=math.inf, posinf=math.inf, neginf=math.inf)
    of = dict(zip(MEASURES, finite, strict=True))
    of |= {name: errors[MEASURES.index(name)] for name in BANDS if _is_empty(errors, name)}
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


def _is_empty(errors: Tensor, band: str) -> bool:
    """Tell whether the grid has no wavenumbers in a band: it is NaN where the error itself is finite."""
    square, values = errors[MEASURES.index("square")], errors[MEASURES.index(band)]
    return bool(values.isnan().all() and square.isfinite().any())


def _root_mean(squares: Tensor) -> float:
    """Return the mean of the square roots."""
    return squares.sqrt().mean().item()
