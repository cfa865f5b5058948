"""What training makes small: the relative error over a few predicted frames."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainer.data.trajectories import Windows
from trainer.models.operator import Operator


class UnrollLoss(nn.Module):
    """The mean relative error of the frames that the operator predicts one from the other.

    A module of its own, so that a wrapper sees one forward and one backward a micro-batch, whatever the
    unroll is.
    """

    def __init__(self, operator: Operator) -> None:
        super().__init__()
        self.operator = operator

    def forward(self, windows: Windows) -> Tensor:
        scale = self.operator.scale(windows.task)
        u = windows.fields[:, 0] + scale.std[0] * windows.noise
        errors = []
        for target in windows.fields[:, 1:].unbind(1):
            u = self.operator(u, windows.conditions, windows.task)
            errors.append(relative_error(u, target, scale.std[1]))
        return torch.stack(errors).mean()


def relative_error(prediction: Tensor, target: Tensor, unit: Tensor) -> Tensor:
    """(B,): of fields (B, K, *X), the norm of the error over the norm of the target; `unit` (K, *1) makes
    channels comparable."""
    error, size = (((field / unit).flatten(1)).norm(dim=1) for field in (prediction - target, target))
    return error / size.clamp_min(1e-6)
