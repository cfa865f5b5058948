"""Following: a network comes closer to another one of the same parts, however both are spread."""

from __future__ import annotations

import torch
from torch.distributed.fsdp import FSDPModule

from trainer.models.operator import Network
from trainer.shards import local


@torch.no_grad()
def pull(network: Network, towards: Network, share: float) -> None:
    """All that `network` holds is nearer to `towards` by a share of the difference; with 1 it is the same."""
    for module in network.modules():
        if isinstance(module, FSDPModule):
            module.reshard()  # weights that were gathered before are not those of the next forward pass
    # Of sharded networks the state is the shards, whatever lies gathered.
    theirs, ours = (local(each.state_dict().values()) for each in (towards, network))
    torch._foreach_lerp_(ours, theirs, share)
