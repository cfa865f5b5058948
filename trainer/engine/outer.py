"""The outer optimiser of DiLoCo (Douillard et al. 2023): SGD with Nesterov's momentum on pseudo-gradients.

A node's pseudo-gradient is its weights when the nodes last met, less its weights now. One vector in fp32, of
the size of the weights and a number for each node, is all that the nodes exchange.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from vastrun.contract.config import DilocoConfig
from vastrun.trainer.checkpoints.contents import OUTER


class OuterOptimizer:
    """What a node keeps between two meetings, in main memory: 2 vectors of N numbers for N parameters."""

    def __init__(self, model: nn.Module, config: DilocoConfig, *, node: int, nodes: int) -> None:
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._node, self._nodes = node, nodes
        self._weights = nn.Parameter(self._now())
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
    def meetings(self) -> int:
        """How often the nodes have met; above 0 from the first step on."""
        return int(self._counts[0])

    @property
    def missed(self) -> int:
        """How many pseudo-gradients were missing at the meetings, of nodes that had died or come later."""
        return int(self._counts[1])

    @property
    def is_due(self) -> bool:
        """Tell whether this node has come to a meeting, and not met there yet."""
        return bool(self._counts[2])

    @is_due.setter
    def is_due(self, is_due: bool) -> None:
        self._counts[2] = is_due

    def tensors(self) -> dict[str, Tensor]:
        """Return all that it keeps, by its name in a checkpoint: the very tensors."""
        kept = {"weights": self._weights.detach(), "momentum": self._momentum, "counts": self._counts}
        return {f"{OUTER}{name}": tensor for name, tensor in kept.items()}

    def begin(self, meetings: int) -> None:
        """Take the weights of now for those of the last meeting, as a training does that begins."""
        self._weights.data.copy_(self._now())
        self._counts[0] = meetings

    def pseudo_gradient(self) -> Tensor:
        """Return that of this node, (N + nodes,): behind it a 1 in the place of this node."""
        given = self.no_gradient()
        given[: -self._nodes] = self._weights.detach() - self._now()
        given[self._node - self._nodes] = 1
        return given

    def no_gradient(self) -> Tensor:
        """Return what a node gives that has nothing to add, (N + nodes,)."""
        return torch.zeros(len(self._weights) + self._nodes)

    @torch.no_grad()
    def step(self, total: Tensor) -> list[int]:
        """Take a step along the mean of those whose sum is `total`, (N + nodes,); none when nobody gave any.

        Returns the numbers of the nodes that gave one.
        """
        self._counts[0] += 1
        given = [node for node, share in enumerate(total[-self._nodes :].tolist()) if share]
        if not given:
            return given
        self._counts[1] += self._nodes - len(given)
        self.is_due = False
        self._weights.grad = total[: -self._nodes] / len(given)
        self._optimizer.step()
        self._weights.grad = None
        # Not `vector_to_parameters`, which would make the parameters parts of the vector itself.
        parts = self._weights.detach().split([p.numel() for p in self._parameters])
        for parameter, part in zip(self._parameters, parts, strict=True):
            parameter.copy_(part.view_as(parameter))
        return given

    @torch.no_grad()
    def _now(self) -> Tensor:
        return parameters_to_vector(self._parameters).detach().float().cpu().clone()
