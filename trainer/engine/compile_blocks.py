"""Activation checkpointing and torch.compile, applied block by block before the model is wrapped."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import create_selective_checkpoint_contexts

from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.stages.objective import Objective

_aten = torch.ops.aten
_SAVED_OPERATIONS = [
    _aten.mm.default,
    _aten.addmm.default,
    _aten.bmm.default,
    _aten.baddbmm.default,
    _aten._scaled_dot_product_flash_attention.default,
    _aten._scaled_dot_product_efficient_attention.default,
    _aten._scaled_dot_product_cudnn_attention.default,
    _aten._scaled_dot_product_flash_attention_for_cpu.default,
]
"""Operations whose outputs `selective` keeps. Fourier transforms are left out: their outputs are as large as
their inputs, and keeping them takes more memory than no checkpointing at all."""
_save_matmuls = partial(create_selective_checkpoint_contexts, _SAVED_OPERATIONS)


def checkpoint_and_compile(objective: Objective, config: TrainConfig) -> None:
    """Wrap and compile the blocks in place. A compiled part compiles at its first use."""
    networks = objective.networks
    if config.activation_checkpointing != "off":
        # Not torch's own `noop_context_fn` with full: Dynamo cannot trace it.
        selective = {"context_fn": _save_matmuls} if config.activation_checkpointing == "selective" else {}
        blocks = objective.learner.blocks
        for number, block in enumerate(blocks):
            # Nothing in our blocks is random, so that their second pass needs no state of the generator.
            blocks[number] = checkpoint_wrapper(block, preserve_rng_state=config.model.is_own, **selective)
    all_blocks = [block for network in networks for block in network.blocks]
    parts: dict[str, list[nn.Module]] = {
        "off": [],
        "blocks": all_blocks,
        "whole": [*networks],
        "max-autotune": all_blocks,
    }
    mode = "reduce-overhead" if config.cuda_graphs else None
    if config.compile == "max-autotune":
        mode = "max-autotune" if config.cuda_graphs else "max-autotune-no-cudagraphs"
    for part in parts[config.compile]:
        # Not `part.compile()`: that would compile the wrappers' hooks with it.
        part.forward = torch.compile(part.forward, mode=mode)
