"""What training makes small: the relative error over a few predicted frames, in physical units."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainer.data.trajectories import Windows
from trainer.models.operator import Operator


class UnrollLoss(nn.Module):
    """The mean relative error of the frames that the operator predicts one from the other.

    A module of its own, so that a wrapper sees one forward and one backward a step, whatever the unroll is.
    """

    def __init__(self, operator: Operator) -> None:
        super().__init__()
        self.operator = operator

    def forward(self, windows: Windows) -> Tensor:
        u = windows.fields[:, 0] + self.operator.std * windows.noise
        errors = []
        for target in windows.fields[:, 1:].unbind(1):
            u = self.operator(u, windows.conditions)
            errors.append((u - target).norm(dim=1) / target.norm(dim=1).clamp_min(1e-6))
        return torch.stack(errors).mean()
