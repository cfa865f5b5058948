"""Optimisers and learning rate: AdamW, and Muon for the matrices inside the blocks.

Muon (Jordan et al. 2024) steps along the nearest orthogonal matrix to the averaged gradient.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as torch_dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from vastrun.trainer.distributed.group import local
from vastrun.trainer.job.config import OptimConfig
from vastrun.trainer.models.operator import Network

_MOMENTUM = 0.95

_FINAL_FACTOR = 0.01


class Muon(torch.optim.Optimizer):
    """Muon for the hidden matrices, AdamW for all else, with the same learning rate and weight decay.

    A sharded matrix is gathered for its step, because a shard alone has a different nearest orthogonal
    matrix: each matrix on one of the ranks, as many at once as there are ranks.
    """

    _step_supports_amp_scaling = True
    """Read by torch's GradScaler: steps are skipped on the device, so that the host need not wait to know."""

    def __init__(
        self, matrices: list[dict[str, Any]], vectors: list[dict[str, Any]], *, lr: float, **adamw: Any
    ) -> None:
        self._adamw = torch.optim.AdamW(vectors, lr=lr, **adamw)
        groups = [*({**group, "orthogonal": True} for group in matrices), *self._adamw.param_groups]
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0, "orthogonal": False})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # noqa: ARG002 - of the base class
        # The scaler sets both for the duration of the call: above 0, an fp16 gradient has overflowed.
        overflowed: Tensor | None = getattr(self, "found_inf", None)
        assert getattr(self, "grad_scale", None) is None, "the gradients are still scaled"
        for group in self.param_groups:
            for matrices in _step_groups(group["params"] if group["orthogonal"] else ()):
                self._orthogonal_step(matrices, group["lr"], group["weight_decay"], overflowed)
        # Loading a state replaces these objects.
        self._adamw.state = self.state
        self._adamw.param_groups = [group for group in self.param_groups if not group["orthogonal"]]
        self._adamw.found_inf = overflowed
        self._adamw.step()

    def _orthogonal_step(
        self, matrices: Sequence[Tensor], rate: float, decay: float, overflowed: Tensor | None
    ) -> None:
        changed = local([*matrices, *(self._momentum(matrix) for matrix in matrices)])
        before = [] if overflowed is None else [tensor.clone() for tensor in changed]
        parts, momenta = changed[: len(matrices)], changed[len(matrices) :]
        updates = []
        for gradient, momentum in zip(local(m.grad for m in matrices), momenta, strict=True):
            momentum.lerp_(gradient, 1 - _MOMENTUM)
            updates.append(gradient.lerp(momentum, _MOMENTUM))
        for matrix, part, direction in zip(matrices, parts, _orthogonal(matrices, updates), strict=True):
            # Scaled like AdamW's updates, so that one learning rate serves both (Liu et al. 2025).
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


def _step_groups(parameters: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Yield the matrices of one step: as many sharded ones as there are ranks, or one whole matrix."""
    trained = [parameter for parameter in parameters if parameter.grad is not None]
    count = 1
    if trained and isinstance(trained[0], DTensor):
        count = trained[0].device_mesh.size()
        # Similar sizes together: a rank with a small matrix waits for those with large ones.
        trained.sort(key=Tensor.numel)
    for first in range(0, len(trained), count):
        yield trained[first : first + count]


def _orthogonal(matrices: Sequence[Tensor], updates: list[Tensor]) -> list[Tensor]:
    """Return the orthogonal matrix nearest to each update; inputs and outputs are this rank's shards."""
    first = matrices[0]
    if not isinstance(first, DTensor):
        return [_newton_schulz(update) for update in updates]
    group, ranks = first.device_mesh.get_group(), first.device_mesh.size()
    device, here = torch.device(first.device_mesh.device_type), first.device_mesh.get_local_rank()
    own_shape = matrices[here].shape if here < len(matrices) else None
    sizes = [rows * own_shape[1] for rows in shard_rows(own_shape[0], ranks)] if own_shape else [0] * ranks
    sent = [update.numel() for update in updates] + [0] * (ranks - len(updates))
    # Each rank receives all shards of its matrix, and returns to each rank its shard of the result.
    flat = all_to_all(torch.cat([update.flatten() for update in updates]), sent, sizes, group, device)
    if own_shape:
        flat = _newton_schulz(flat.view(own_shape)).flatten()
    answers = all_to_all(flat, sizes, sent, group, device).split(sent)
    return [
        answer.view_as(update).to(update.device) for answer, update in zip(answers, updates, strict=False)
    ]


def shard_rows(rows: int, ranks: int) -> list[int]:
    """Return the number of rows on each rank: FSDP2 shards the first axis as `torch.chunk` does."""
    max_rows = -(-rows // ranks)
    return [max(0, min(max_rows, rows - max_rows * rank)) for rank in range(ranks)]


def all_to_all(
    values: Tensor, sent: list[int], received: list[int], group: torch_dist.ProcessGroup, device: torch.device
) -> Tensor:
    """Send each rank its part of `values`, and return the received parts, on `device`.

    The values may be offloaded to main memory, which NCCL cannot read.
    """
    values = values.to(device)
    received_values = torch.empty(sum(received), dtype=values.dtype, device=device)
    torch_dist.all_to_all_single(received_values, values, received, sent, group=group)
    return received_values


def _newton_schulz(matrix: Tensor) -> Tensor:
    """Bring all singular values close to 1, by matrix products alone (Newton-Schulz iteration)."""
    x = matrix.bfloat16() if matrix.is_cuda else matrix
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / (x.norm() + 1e-7)
    a, b, c = (3.4445, -4.7750, 2.0315)
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.T if tall else x).to(matrix.dtype)


def make_optimizer(network: Network, config: OptimConfig) -> torch.optim.Optimizer:
    """Make the optimiser of a network that is already wrapped.

    Vectors and scalars have no weight decay; frozen parameters are left out.
    """
    return _OPTIMIZERS[config.name](network, config)


def adamw(model: nn.Module, config: OptimConfig) -> torch.optim.AdamW:
    """Make AdamW with weight decay on matrices only."""
    groups = _groups(model.parameters(), config)
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, fused=True)


def muon(network: Network, config: OptimConfig) -> Muon:
    """Make Muon for the matrices of the blocks; AdamW trains vectors and the first and last layers."""
    matrices = [p for p in network.blocks.parameters() if p.ndim == 2]
    hidden = set(matrices)
    vectors = _groups((p for p in network.parameters() if p not in hidden), config)
    hidden_group = {"params": matrices, "weight_decay": config.weight_decay}
    return Muon([hidden_group], vectors, lr=config.lr, betas=config.betas, fused=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every parameter."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def _groups(parameters: Iterable[nn.Parameter], config: OptimConfig) -> list[dict[str, Any]]:
    parameters = [p for p in parameters if p.requires_grad]
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]


_OPTIMIZERS: dict[str, Callable[[Network, OptimConfig], torch.optim.Optimizer]] = {
    "adamw": adamw,
    "muon": muon,
}


class LearningRateSchedule:
    """Linear warm-up, then the decay that the job names, down to at least a hundredth of the full rate."""

    def __init__(self, config: OptimConfig, steps: int) -> None:
        self._config = config
        self._warmup = round(config.warmup * steps)
        self._steps = max(1, steps - self._warmup)

    def rate(self, step: int) -> float:
        """Return the learning rate of `step`, counted from 0."""
        config = self._config
        if step < self._warmup:
            return config.lr * (step + 1) / self._warmup
        share = _DECAYS[config.schedule](step - self._warmup, self._steps, config)
        return config.lr * (_FINAL_FACTOR + (1 - _FINAL_FACTOR) * share)


_DECAYS: dict[str, Callable[[int, int, OptimConfig], float]] = {
    "cosine": lambda step, steps, _: 0.5 * (1 + math.cos(math.pi * step / steps)),
    "linear": lambda step, steps, _: 1 - step / steps,
    "step": lambda step, _, config: config.drop ** (step // config.drop_after),
    "constant": lambda _, __, ___: 1.0,
}
