"""FSDP2: every rank holds a part of each parameter; a block is whole only while it computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as torch_dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

from trainer.config import TrainConfig
from trainer.models.weights import materialise
from trainer.objective import UnrollLoss
from trainer.precision import DTYPES
from trainer.strategies.strategy import Strategy


def wrap(objective: UnrollLoss, config: TrainConfig, device: torch.device) -> nn.Module:
    """Sharded block by block, as soon as a block has its weights: no rank ever holds the whole model."""
    operator = objective.operator
    units = {*operator.blocks, operator}
    mesh = init_device_mesh(device.type, (torch_dist.get_world_size(),))

    def shard(module: nn.Module) -> None:
        if module not in units:
            return
        fully_shard(
            module,
            mesh=mesh,
            # What belongs to no block is small, and needed again at once: it stays whole.
            reshard_after_forward=config.fsdp2.reshard_after_forward and module is not operator,
            mp_policy=_precision(config),
            offload_policy=CPUOffloadPolicy() if config.fsdp2.cpu_offload else OffloadPolicy(),
        )

    materialise(objective, when_drawn=shard)
    return objective


def _precision(config: TrainConfig) -> MixedPrecisionPolicy:
    """Weights are sent and used in the small type, gradients added up in fp32; autocast casts the inputs."""
    if config.precision == "fp32":
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(
        param_dtype=DTYPES[config.precision], reduce_dtype=torch.float32, cast_forward_inputs=False
    )


@contextmanager
def passes(model: UnrollLoss, last: bool) -> Iterator[None]:
    """The model is used once a frame. What all uses and all micro-batches gave stays whole on this rank until
    the last backward pass comes to the first use, and is sent then, block by block."""
    operator = model.operator

    def at_first_use(operator: nn.Module, _: Any, prediction: Tensor) -> None:
        hook.remove()
        prediction.register_hook(lambda _: operator.set_requires_gradient_sync(True))

    operator.set_requires_gradient_sync(False)
    if not last:
        yield
        return
    hook = operator.register_forward_hook(at_first_use)
    try:
        yield
    finally:
        hook.remove()


FSDP2 = Strategy(wrap=wrap, passes=passes, sharded=True)
