"""What is done to a model block by block before it is spread: activation checkpointing, then compilation."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from trainer.config import TrainConfig
from trainer.objective import UnrollLoss


def prepare(objective: UnrollLoss, config: TrainConfig) -> None:
    """In place. A compiled part compiles when it is first used."""
    blocks = objective.operator.blocks
    if config.activation_checkpointing:
        for number, block in enumerate(blocks):
            # Nothing in a block is random, so its second pass needs no state of the generator.
            blocks[number] = checkpoint_wrapper(block, preserve_rng_state=False)
    parts: dict[str, list[nn.Module]] = {"off": [], "blocks": list(blocks), "whole": [objective.operator]}
    for part in parts[config.compile]:
        # Not `part.compile()`: that would compile the wrappers' hooks with it.
        part.forward = torch.compile(part.forward, mode="reduce-overhead" if config.cuda_graphs else None)
