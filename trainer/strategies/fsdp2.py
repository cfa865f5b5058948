"""FSDP2: every rank holds a shard of each parameter; a block is gathered only while it computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as torch_dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

from vastrun.contract.config import TrainConfig
from vastrun.trainer.models.precision import DTYPES, is_half
from vastrun.trainer.models.weights import materialise, move_buffers
from vastrun.trainer.stages.objective import Objective
from vastrun.trainer.strategies.strategy import Strategy

_FP32_POLICY = MixedPrecisionPolicy(cast_forward_inputs=False)


def wrap(objective: Objective, config: TrainConfig, device: torch.device) -> nn.Module:
    """Shard block by block, as soon as a block has its weights: no rank ever holds the whole model."""
    networks = objective.networks
    fp32_modules = {module for network in networks for module in network.fp32_modules}
    units = {*networks, *fp32_modules, *(block for network in networks for block in network.blocks)}
    # The mesh needs real tensors, also where the weights are fake (trainer/workload).
    with unset_fake_temporarily():
        mesh = init_device_mesh(device.type, (torch_dist.get_world_size(),))

    def shard(module: nn.Module) -> None:
        if module not in units:
            return
        fully_shard(
            module,
            mesh=mesh,
            # Parameters outside of blocks are few, and needed again at once: they stay gathered, and in fp32,
            # the type of the gradients that earlier turns left; a task's own parts may have none yet.
            reshard_after_forward=config.fsdp2.reshard_after_forward and module not in networks,
            mp_policy=_FP32_POLICY if module in fp32_modules or module in networks else _precision(config),
            offload_policy=CPUOffloadPolicy() if config.fsdp2.cpu_offload else OffloadPolicy(),
        )

    materialise(objective, on_ready=shard)
    # FSDP2 moves the tensors of a network. The fixed noise of the later stages belongs to none.
    move_buffers(objective, device)
    return objective


def _precision(config: TrainConfig) -> MixedPrecisionPolicy:
    """Gather weights in half precision, reduce gradients in fp32. Autocast casts the inputs."""
    # Autocast casts the weights of a user's blocks, too, as with ddp: their code may expect fp32 elsewhere.
    if config.model.is_own:
        return _FP32_POLICY
    if not is_half(config.precision):
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(
        param_dtype=DTYPES[config.precision], reduce_dtype=torch.float32, cast_forward_inputs=False
    )


@contextmanager
def gradient_sync(model: Objective, last: bool) -> Iterator[None]:
    """Keep unreduced gradients of all passes on this rank until the last backward pass.

    The model is called once per frame. The sum over all calls and all micro-batches is reduced block by block
    when the last backward pass reaches the first call.
    """
    learner = model.learner

    def at_first_use(learner: nn.Module, _: Any, prediction: Tensor) -> None:
        hook.remove()
        # Backward reaches the first call last: by then all gradients are there.
        prediction.register_hook(lambda _: learner.set_requires_gradient_sync(True))

    learner.set_requires_gradient_sync(False)
    if not last:
        yield
        return
    hook = learner.register_forward_hook(at_first_use)
    try:
        yield
    finally:
        hook.remove()


FSDP2 = Strategy(wrap=wrap, gradient_sync=gradient_sync, sharded=True)
