"""Muon (Jordan et al. 2024): steps along the nearest orthogonal matrix to the averaged gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

_MOMENTUM = 0.95
_ROUNDS = 5
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)


class Muon(torch.optim.Optimizer):
    """Muon for some groups, AdamW for the others, at the same rate and decay.

    A sharded matrix is put together for its step, since a part of it has another orthogonal neighbour.
    """

    def __init__(
        self, matrices: list[dict[str, Any]], others: list[dict[str, Any]], *, lr: float, **adamw: Any
    ) -> None:
        self._adamw = torch.optim.AdamW(others, lr=lr, **adamw)
        groups = [*({**group, "orthogonal": True} for group in matrices), *self._adamw.param_groups]
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0, "orthogonal": False})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # noqa: ARG002 - of the base class
        for group in self.param_groups:
            for parameter in group["params"] if group["orthogonal"] else ():
                if parameter.grad is not None:
                    self._turn(parameter, group["lr"], group["weight_decay"])
        # A state that was loaded is made of new objects.
        self._adamw.state = self.state
        self._adamw.param_groups = [group for group in self.param_groups if not group["orthogonal"]]
        self._adamw.step()

    def _turn(self, parameter: Tensor, rate: float, decay: float) -> None:
        state = self.state[parameter]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        state["momentum"].lerp_(parameter.grad, 1 - _MOMENTUM)
        direction = _orthogonal(parameter.grad.lerp(state["momentum"], _MOMENTUM))
        # Of the size that AdamW's updates have, so that one learning rate serves both (Liu et al. 2025).
        size = 0.2 * max(parameter.shape) ** 0.5
        parameter.mul_(1 - rate * decay).add_(direction, alpha=-rate * size)


def _orthogonal(update: Tensor) -> Tensor:
    """Return the orthogonal matrix closest to `update`, spread over the ranks as that is."""
    if isinstance(update, DTensor):
        whole = _newton_schulz(update.full_tensor())
        return distribute_tensor(whole, update.device_mesh, update.placements, src_data_rank=None)
    return _newton_schulz(update)


def _newton_schulz(matrix: Tensor) -> Tensor:
    """Bring all singular values near 1, by an iteration of matrix products alone."""
    x = matrix.bfloat16() if matrix.is_cuda else matrix
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / (x.norm() + 1e-7)
    a, b, c = _COEFFICIENTS
    for _ in range(_ROUNDS):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.T if tall else x).to(matrix.dtype)
