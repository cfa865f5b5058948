"""What is done to a model block by block before it is spread: activation checkpointing, then compilation."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from trainer.contract.config import TrainConfig
from trainer.stages.objective import Objective


def prepare(objective: Objective, config: TrainConfig) -> None:
    """Change the model in place. A compiled part compiles when it is first used."""
    networks = objective.networks
    if config.activation_checkpointing:
        blocks = objective.learner.blocks
        for number, block in enumerate(blocks):
            # Nothing in a block is random, so its second pass needs no state of the generator.
            blocks[number] = checkpoint_wrapper(block, preserve_rng_state=False)
    parts: dict[str, list[nn.Module]] = {
        "off": [],
        "blocks": [block for network in networks for block in network.blocks],
        "whole": [*networks],
    }
    for part in parts[config.compile]:
        # Not `part.compile()`: that would compile the wrappers' hooks with it.
        part.forward = torch.compile(part.forward, mode="reduce-overhead" if config.cuda_graphs else None)
