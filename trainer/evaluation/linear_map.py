"""Linear map: the next frame of a field as a linear function of this one, fitted by least squares.

    mode of the next frame = matrix * mode of this frame + offset

with a matrix and an offset for each mode, at each of G parameters. The modes are Fourier's where the field is
periodic, and cosines between walls. Shapes: M modes, A = K + 1 inputs of a mode.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from vastrun.trainer.models.modes import cosine_modes

_RIDGE = 1e-10
"""Share of a mode's mean power that is added to its normal equations, for modes of rounding errors."""


@dataclass(frozen=True, kw_only=True)
class Modes:
    """Transform of fields (B, K, *X) to modes (B, K, M), and back."""

    grid: tuple[int, ...]
    periodic: bool

    def transform(self, fields: Tensor) -> Tensor:
        """Return the modes: complex for a periodic field, else real."""
        if self.periodic:
            axes = tuple(range(2, fields.ndim))
            return torch.fft.rfftn(fields, dim=axes, norm="ortho").flatten(2)
        for axis, points in enumerate(self.grid, start=2):
            fields = torch.tensordot(fields, _cosines(points, fields), dims=([axis], [1])).movedim(-1, axis)
        return fields.flatten(2)

    def inverse(self, modes: Tensor) -> Tensor:
        """Return the fields of modes."""
        if self.periodic:
            axes = tuple(range(2, 2 + len(self.grid)))
            shaped = modes.unflatten(2, (*self.grid[:-1], self.grid[-1] // 2 + 1))
            return torch.fft.irfftn(shaped, s=self.grid, dim=axes, norm="ortho")
        fields = modes.unflatten(2, self.grid)
        for axis, points in enumerate(self.grid, start=2):
            fields = torch.tensordot(fields, _cosines(points, fields), dims=([axis], [0])).movedim(-1, axis)
        return fields

    def has_offset(self, modes: int, like: Tensor) -> Tensor:
        """Return one for each mode that may have an offset, (M,): of a periodic field only the mean.

        A shifted solution of a periodic problem is a solution, so that no point of it is special.
        """
        ones = torch.ones(modes, dtype=like.dtype, device=like.device)
        if self.periodic:
            ones[1:] = 0
        return ones


def _cosines(points: int, like: Tensor) -> Tensor:
    return cosine_modes(points).to(like)


@dataclass(frozen=True, kw_only=True)
class LinearMap:
    """Fitted linear map of each parameter, in float64."""

    modes: Modes
    weights: Tensor
    """(G, M, A, K): matrix and offset of each mode, for each of G parameters."""

    def predict(self, fields: Tensor, group: Tensor) -> Tensor:
        """Return the next frames of fields (B, K, *X), with the parameters `group` (B,) by number."""
        inputs = _inputs(self.modes, self.modes.transform(fields.double()))
        found = torch.empty_like(inputs[:, :-1])
        for number in group.unique().tolist():
            rows = group == number
            found[rows] = torch.einsum("bam,mak->bkm", inputs[rows], self.weights[number])
        return self.modes.inverse(found)


def _inputs(modes: Modes, values: Tensor) -> Tensor:
    """Return modes (B, K, M) with a one for the offset: (B, A, M)."""
    ones = modes.has_offset(values.shape[2], values).expand(len(values), 1, -1)
    return torch.cat([values, ones], dim=1)


def fit_linear_map(modes: Modes, groups: Iterable[Iterable[Tensor]]) -> LinearMap:
    """Fit the map of each parameter to batches of its trajectories, (B, T, K, *X) in float64."""
    return LinearMap(modes=modes, weights=torch.stack([_fit(modes, batches) for batches in groups]))


def _fit(modes: Modes, batches: Iterable[Tensor]) -> Tensor:
    """Solve the normal equations of all modes: (M, A, K)."""
    products: Tensor | None = None
    targets: Tensor | None = None
    for fields in batches:
        values = modes.transform(fields.flatten(0, 1)).unflatten(0, fields.shape[:2])
        before, after = values[:, :-1].flatten(0, 1), values[:, 1:].flatten(0, 1)
        inputs = _inputs(modes, before).permute(2, 1, 0)  # (M, A, B)
        conjugate = inputs.conj()
        own = conjugate @ inputs.mT, conjugate @ after.permute(2, 0, 1)
        products = own[0] if products is None else products + own[0]
        targets = own[1] if targets is None else targets + own[1]
    assert products is not None and targets is not None, "a parameter has at least one trajectory"
    size = products.shape[1]
    power = products.diagonal(dim1=1, dim2=2).real.mean(dim=1)
    ridge = (_RIDGE * power).clamp_min(torch.finfo(power.dtype).tiny)
    identity = torch.eye(size, dtype=products.dtype, device=products.device)
    return torch.linalg.solve(products + ridge[:, None, None] * identity, targets)
