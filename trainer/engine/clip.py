"""Clip: the norm of a step's gradient, and its scale down to the largest one."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as torch_dist
from torch import Tensor

from trainer.distributed.shards import local

_SMALL = 1 << 22
"""Values of a gradient that are squared as one vector on a CPU, where each operation counts."""


class GradientClip:
    """Scales gradients down to a norm of at most `most`.

    Not `clip_grad_norm_`: on sharded parameters each of its operations costs the host many times as much.
    """

    def __init__(self, most: float, *, sharded: bool, device: torch.device) -> None:
        self._most = most
        self._sharded = sharded
        self._device = device
        self._vector = torch.empty(0, dtype=torch.float64)
        self._parts: list[Tensor] = []
        """Of the vector, in the shapes of the gradients."""

    @torch.no_grad()
    def scale(self, gradients: Iterable[Tensor]) -> Tensor:
        """Scale them; return the norm that they had, of all ranks' shards, on the device."""
        own = local(gradients)
        square = self._square(own).to(self._device)
        if self._sharded:
            torch_dist.all_reduce(square)
        norm = square.sqrt().float()
        # No `if norm > most`: to know the answer the host would wait for the device. The 1e-6 is torch's own.
        scale = (self._most / (norm + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(own, scale.to(own[0].device))
        return norm

    def _square(self, gradients: list[Tensor]) -> Tensor:
        # Squares are added up in float64: shards then give the same last digit as whole tensors.
        if gradients[0].is_cpu and sum(gradient.numel() for gradient in gradients) <= _SMALL:
            self._make_room(gradients)
            torch._foreach_copy_(self._parts, gradients)
            return self._vector.dot(self._vector)
        return torch.stack(torch._foreach_norm(gradients, 2, dtype=torch.float64)).square().sum()

    def _make_room(self, gradients: list[Tensor]) -> None:
        shapes = [gradient.shape for gradient in gradients]
        if shapes != [part.shape for part in self._parts]:
            sizes = [shape.numel() for shape in shapes]
            self._vector = torch.empty(sum(sizes), dtype=torch.float64)
            parts = self._vector.split(sizes)
            self._parts = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
