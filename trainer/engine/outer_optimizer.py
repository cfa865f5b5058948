"""Outer optimiser of DiLoCo (Douillard et al. 2023): SGD with Nesterov momentum on pseudo-gradients.

A node's pseudo-gradient is its weights at the last sync minus its weights now. The nodes exchange one fp32
vector: the size of the weights, plus one number per node.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from vastrun.contract.config import DilocoConfig
from vastrun.trainer.checkpoints.contents import OUTER


class OuterOptimizer:
    """State of a node between two syncs, in main memory: two vectors of N numbers for N parameters."""

    def __init__(self, model: nn.Module, config: DilocoConfig, *, node: int, nodes: int) -> None:
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._node, self._nodes = node, nodes
        self._weights = nn.Parameter(self._flat_parameters())
        self._momentum = torch.zeros_like(self._weights)
        self._optimizer = torch.optim.SGD(
            [self._weights],
            lr=config.outer_lr,
            momentum=config.outer_momentum,
            nesterov=config.outer_momentum > 0,
        )
        self._optimizer.state[self._weights]["momentum_buffer"] = self._momentum
        self._counts = torch.zeros(3, dtype=torch.int64)

    @property
    def rounds(self) -> int:
        """Number of syncs so far; above 0 from the first step on."""
        return int(self._counts[0])

    @property
    def missing_gradients(self) -> int:
        """Number of pseudo-gradients that were missing so far, of nodes that had died or joined late."""
        return int(self._counts[1])

    @property
    def is_due(self) -> bool:
        """True when this node has reached a sync and not completed it yet."""
        return bool(self._counts[2])

    @is_due.setter
    def is_due(self, is_due: bool) -> None:
        self._counts[2] = is_due

    def tensors(self) -> dict[str, Tensor]:
        """Return the state by its names in a checkpoint: the tensors themselves, not copies."""
        named = {"weights": self._weights.detach(), "momentum": self._momentum, "counts": self._counts}
        return {f"{OUTER}{name}": tensor for name, tensor in named.items()}

    def reset(self, rounds: int) -> None:
        """Take the current weights as those of the last sync, as a new training does."""
        self._weights.data.copy_(self._flat_parameters())
        self._counts[0] = rounds

    def pseudo_gradient(self) -> Tensor:
        """Return this node's pseudo-gradient, (N + nodes,): the tail has a 1 at this node's place."""
        gradient = self.zero_gradient()
        gradient[: -self._nodes] = self._weights.detach() - self._flat_parameters()
        gradient[self._node - self._nodes] = 1
        return gradient

    def zero_gradient(self) -> Tensor:
        """Return the contribution of a node that has not trained, (N + nodes,)."""
        return torch.zeros(len(self._weights) + self._nodes)

    @torch.no_grad()
    def step(self, total: Tensor) -> list[int]:
        """Step along the mean of the pseudo-gradients whose sum is `total`, (N + nodes,).

        Returns the numbers of the nodes that contributed one; without any, there is no step.
        """
        self._counts[0] += 1
        contributors = [node for node, share in enumerate(total[-self._nodes :].tolist()) if share]
        if not contributors:
            return contributors
        self._counts[1] += self._nodes - len(contributors)
        self.is_due = False
        self._weights.grad = total[: -self._nodes] / len(contributors)
        self._optimizer.step()
        self._weights.grad = None
        # Not `vector_to_parameters`, which would make the parameters parts of the vector itself.
        parts = self._weights.detach().split([p.numel() for p in self._parameters])
        for parameter, part in zip(self._parameters, parts, strict=True):
            parameter.copy_(part.view_as(parameter))
        return contributors

    @torch.no_grad()
    def _flat_parameters(self) -> Tensor:
        return parameters_to_vector(self._parameters).detach().float().cpu().clone()
