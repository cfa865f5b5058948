"""EMA: an exponential moving average of the weights, often better than the weights themselves.

The decay rises with the steps, as in TensorFlow's `ExponentialMovingAverage`: otherwise the first weights
would count in a short training for as long as 1 / (1 - decay) steps.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from vastrun.trainer.distributed.group import local, reshard


class Ema:
    """Moving average of a model's parameters; each rank averages its own shards."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        named = model.state_dict(keep_vars=True)
        self._weights = {
            name: value
            for name, value in named.items()
            if isinstance(value, nn.Parameter) and value.requires_grad
        }
        self._average = {name: value.detach().clone() for name, value in self._weights.items()}
        self._decay = decay
        self._model = model

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the weights after step number `step`, counted from 0."""
        share = 1 - min(self._decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(local(self._average.values()), local(self._weights.values()), share)

    @contextmanager
    def average_parameters(self) -> Iterator[None]:
        """Use the average in place of the weights inside the block."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self._average)

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for name, average in self._average.items():
            average.copy_(state[name])

    @torch.no_grad()
    def _swap(self) -> None:
        reshard(self._model)
        for weight, average in zip(local(self._weights.values()), local(self._average.values()), strict=True):
            saved = weight.clone()
            weight.copy_(average)
            average.copy_(saved)
