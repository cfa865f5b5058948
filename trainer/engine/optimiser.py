"""Optimisers: AdamW, and Muon for the matrices within the blocks, with the learning rate of each step.

Muon (Jordan et al. 2024) steps along the nearest orthogonal matrix to the averaged gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as torch_dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from vastrun.contract.config import OptimConfig
from vastrun.trainer.distributed.shards import local
from vastrun.trainer.models.operator import Network

_MOMENTUM = 0.95
_ROUNDS = 5
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)

_LAST_SHARE = 0.01


class Muon(torch.optim.Optimizer):
    """Muon for some groups, AdamW for the others, at the same rate and decay.

    A sharded matrix is put together for its step, since a part of it has another orthogonal neighbour: each
    on one of the ranks, as many at once as there are ranks.
    """

    _step_supports_amp_scaling = True
    """For torch's GradScaler: a step is left out on the device, so that the host need not wait to know it."""

    def __init__(
        self, matrices: list[dict[str, Any]], others: list[dict[str, Any]], *, lr: float, **adamw: Any
    ) -> None:
        self._adamw = torch.optim.AdamW(others, lr=lr, **adamw)
        groups = [*({**group, "orthogonal": True} for group in matrices), *self._adamw.param_groups]
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0, "orthogonal": False})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # noqa: ARG002 - of the base class
        # The scaler sets both for the time of the call: above 0, an fp16 gradient has overflowed.
        overflowed: Tensor | None = getattr(self, "found_inf", None)
        assert getattr(self, "grad_scale", None) is None, "the gradients are still scaled"
        for group in self.param_groups:
            for matrices in _batches(group["params"] if group["orthogonal"] else ()):
                self._turn(matrices, group["lr"], group["weight_decay"], overflowed)
        # A state that was loaded is made of new objects.
        self._adamw.state = self.state
        self._adamw.param_groups = [group for group in self.param_groups if not group["orthogonal"]]
        self._adamw.found_inf = overflowed
        self._adamw.step()

    def _turn(self, matrices: Sequence[Tensor], rate: float, decay: float, overflowed: Tensor | None) -> None:
        changed = local([*matrices, *(self._momentum(matrix) for matrix in matrices)])
        before = [] if overflowed is None else [tensor.clone() for tensor in changed]
        parts, momenta = changed[: len(matrices)], changed[len(matrices) :]
        updates = []
        for gradient, momentum in zip(local(m.grad for m in matrices), momenta, strict=True):
            momentum.lerp_(gradient, 1 - _MOMENTUM)
            updates.append(gradient.lerp(momentum, _MOMENTUM))
        for matrix, part, direction in zip(matrices, parts, _orthogonal(matrices, updates), strict=True):
            # Of the size that AdamW's updates have, so that one learning rate serves both (Liu et al. 2025).
            size = 0.2 * max(matrix.shape) ** 0.5
            part.mul_(1 - rate * decay).add_(direction, alpha=-rate * size)
        if overflowed is not None:
            for tensor, old in zip(changed, before, strict=True):
                tensor.copy_(torch.where(overflowed > 0, old, tensor))

    def _momentum(self, matrix: Tensor) -> Tensor:
        state = self.state[matrix]
        if not state:
            state["momentum"] = torch.zeros_like(matrix)
        return state["momentum"]


def _batches(parameters: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Yield those that take their step at once: as many sharded ones as there are ranks, or a whole one."""
    moved = [parameter for parameter in parameters if parameter.grad is not None]
    count = 1
    if moved and isinstance(moved[0], DTensor):
        count = moved[0].device_mesh.size()
        # Of one size at once, as far as may be: a rank with a small matrix waits for those with large ones.
        moved.sort(key=Tensor.numel)
    for first in range(0, len(moved), count):
        yield moved[first : first + count]


def _orthogonal(matrices: Sequence[Tensor], updates: list[Tensor]) -> list[Tensor]:
    """Return the orthogonal matrix closest to each update; of both, this rank's parts."""
    first = matrices[0]
    if not isinstance(first, DTensor):
        return [_newton_schulz(update) for update in updates]
    group, ranks = first.device_mesh.get_group(), first.device_mesh.size()
    device, here = torch.device(first.device_mesh.device_type), first.device_mesh.get_local_rank()
    mine = matrices[here].shape if here < len(matrices) else None
    sizes = [rows * mine[1] for rows in shard_rows(mine[0], ranks)] if mine else [0] * ranks
    sent = [update.numel() for update in updates] + [0] * (ranks - len(updates))
    # A rank gets all parts of its matrix, and gives each rank its part of the answer.
    flat = exchange(torch.cat([update.flatten() for update in updates]), sent, sizes, group, device)
    if mine:
        flat = _newton_schulz(flat.view(mine)).flatten()
    answers = exchange(flat, sizes, sent, group, device).split(sent)
    return [
        answer.view_as(update).to(update.device) for answer, update in zip(answers, updates, strict=False)
    ]


def shard_rows(rows: int, ranks: int) -> list[int]:
    """Return how many rows of a matrix each rank has: FSDP2 shards the first axis as `torch.chunk` does."""
    most = -(-rows // ranks)
    return [max(0, min(most, rows - most * rank)) for rank in range(ranks)]


def exchange(
    values: Tensor, sent: list[int], received: list[int], group: torch_dist.ProcessGroup, device: torch.device
) -> Tensor:
    """Send each rank its part of `values`, and return what all have sent here, on `device`.

    Offloaded values lie in main memory, of which NCCL knows nothing.
    """
    values = values.to(device)
    there = torch.empty(sum(received), dtype=values.dtype, device=device)
    torch_dist.all_to_all_single(there, values, received, sent, group=group)
    return there


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


def make_optimizer(network: Network, config: OptimConfig) -> torch.optim.Optimizer:
    """Make the optimiser of a network that is already spread.

    Vectors and scalars are not decayed; what is frozen is none of its business.
    """
    return _MAKERS[config.name](network, config)


def adamw(model: nn.Module, config: OptimConfig) -> torch.optim.AdamW:
    """Make AdamW, which lets matrices decay and nothing else."""
    groups = _groups(model.parameters(), config)
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, fused=True)


def muon(network: Network, config: OptimConfig) -> Muon:
    """Make an optimiser in which AdamW trains what is no matrix, and the layers at the ends of the model."""
    matrices = [p for p in network.blocks.parameters() if p.ndim == 2]
    hidden = set(matrices)
    others = _groups((p for p in network.parameters() if p not in hidden), config)
    turned = {"params": matrices, "weight_decay": config.weight_decay}
    return Muon([turned], others, lr=config.lr, betas=config.betas, fused=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give every parameter this learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def _groups(parameters: Iterable[nn.Parameter], config: OptimConfig) -> list[dict[str, Any]]:
    parameters = [p for p in parameters if p.requires_grad]
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]


_MAKERS: dict[str, Callable[[Network, OptimConfig], torch.optim.Optimizer]] = {
    "adamw": adamw,
    "muon": muon,
}


class Schedule:
    """A linear warm-up, then the course that the job names, down to a hundredth of the full rate at most."""

    def __init__(self, config: OptimConfig, steps: int) -> None:
        self._config = config
        self._warmup = round(config.warmup * steps)
        self._steps = max(1, steps - self._warmup)

    def rate(self, step: int) -> float:
        """Return the rate of `step`, counted from 0."""
        config = self._config
        if step < self._warmup:
            return config.lr * (step + 1) / self._warmup
        share = _COURSES[config.schedule](step - self._warmup, self._steps, config)
        return config.lr * (_LAST_SHARE + (1 - _LAST_SHARE) * share)


_COURSES: dict[str, Callable[[int, int, OptimConfig], float]] = {
    "cosine": lambda step, steps, _: 0.5 * (1 + math.cos(math.pi * step / steps)),
    "linear": lambda step, steps, _: 1 - step / steps,
    "step": lambda step, _, config: config.drop ** (step // config.drop_after),
    "constant": lambda _, __, ___: 1.0,
}
