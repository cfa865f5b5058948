"""A frozen encoder by itself: whole on this rank, however the operator is spread."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from trainer.contract.config import ModelConfig
from trainer.models.codec import PatchEncoder
from trainer.models.latent_operator import LatentOperator
from trainer.models.operator import Scale


class FrozenEncoder(nn.Module):
    """A copy of the encoder of one task, and of the scale before it. All ranks make theirs at once."""

    def __init__(
        self, operator: LatentOperator, task: int, config: ModelConfig, device: torch.device
    ) -> None:
        super().__init__()
        domain = operator.domains[task]
        with torch.device("meta"):
            self.scale = Scale(domain)
            self.encoder = PatchEncoder(config, domain)
        for copy, original in ((self.scale, operator.scale(task)), (self.encoder, operator.encoders[task])):
            state = {name: _whole(tensor, device) for name, tensor in original.state_dict().items()}
            copy.load_state_dict(state, assign=True)

    @torch.no_grad()
    def forward(self, fields: Tensor) -> Tensor:
        """Fields (B, K, *X) in physical units to tokens (B, S, D), in fp32."""
        tokens: Tensor = self.encoder(self.scale.into(fields))
        return tokens

    def digest(self) -> str:
        """A name for what it makes of a field: its grid, patches, units and weights."""
        told = hashlib.sha256()
        for name, tensor in self.state_dict().items():
            told.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            told.update(tensor.cpu().contiguous().numpy())
        return told.hexdigest()


def _whole(tensor: Tensor, device: torch.device) -> Tensor:
    # On the device first: shards that were offloaded have no way to each other.
    there = tensor.detach().to(device)
    return there.full_tensor() if isinstance(there, DTensor) else there
