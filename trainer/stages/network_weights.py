"""Following: a network takes over what another one knows, at once or little by little, however spread."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from trainer.distributed.shards import local
from trainer.models.latent_operator import Latent
from trainer.models.operator import Network


@torch.no_grad()
def ema_update(network: Network, towards: Network, share: float) -> None:
    """All that `network` holds is nearer to `towards` by a share of the difference; with 1 it is the same."""
    torch._foreach_lerp_([*_held(network).values()], [*_held(towards).values()], share)


@torch.no_grad()
def initialise_from(network: Latent, of: Latent, *, answers: bool) -> None:
    """`network` begins with what `of` knows of the fields and conditions that it is given first; what it is
    given besides means nothing yet. Without `answers` it says nothing at first."""
    ours = _held(network)
    for name, known in _held(of).items():
        part, task, *_ = name.split(".")
        if part in ("scales", "decoders") and not (answers and part == "decoders"):
            continue
        mine = ours[name]
        if mine.shape != known.shape:
            points = math.prod(of.encoders[int(task)].size) if part == "encoders" else 1
            mine.zero_()
            known = known.unflatten(1, (points, -1))
            mine = mine.unflatten(1, (points, -1))[:, :, : known.shape[2]]
        mine.copy_(known)


def _held(network: Network) -> dict[str, Tensor]:
    """This rank's part of all parameters and buffers, by name."""
    # Under FSDP2 this lets go of what lay gathered: the next forward pass gathers the new weights.
    held = network.state_dict()
    return dict(zip(held, local(held.values()), strict=True))
