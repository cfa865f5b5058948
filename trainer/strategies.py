"""Strategies: ways to distribute a model over the ranks, and their registry.

With `single` one rank trains without a wrapper. With `ddp` every rank holds the whole model, and gradients
are averaged during the backward pass. With `fsdp2` every rank holds a shard of each parameter, and a block is
gathered only while it computes.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
import torch.distributed as torch_dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.models.precision import DTYPES, is_half
from vastrun.trainer.models.weights import materialise, move, move_buffers
from vastrun.trainer.stages.objective import Objective

_FP32_POLICY = MixedPrecisionPolicy(cast_forward_inputs=False)


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """Functions and properties of one strategy."""

    wrap: Callable[[Objective, TrainConfig, torch.device], nn.Module]
    """Draws the weights of a model on the meta device, moves it to its device and wraps it."""
    gradient_sync: Callable[[nn.Module, bool], AbstractContextManager]
    """Context around the passes of a micro-batch: gradients are exchanged in the last one of a step."""
    sharded: bool
    """True when a rank holds only a shard of each parameter."""


def _wrap_single(objective: Objective, config: TrainConfig, device: torch.device) -> nn.Module:
    """Draw the weights and move the objective to the device."""
    materialise(objective)
    move(objective, device)
    if config.cuda_graphs:
        # CUDA graphs need gradients at fixed addresses: they are accumulated into these tensors.
        for parameter in objective.parameters():
            parameter.grad = torch.zeros_like(parameter)
    return objective


def _wrap_ddp(objective: Objective, config: TrainConfig, device: torch.device) -> nn.Module:
    """Draw the weights and wrap the objective in torch's DDP."""
    materialise(objective)
    move(objective, device)
    # Without find_unused_parameters, DDP reorders its buckets after the first backward pass. The place of a
    # number in a message decides in which order ranks add it: a resumed run would add in another order.
    # With several tasks, the last pass of a step uses one task's ends; the gradients of the others are sent
    # with it. A user's model may have parameters that a pass does not use.
    find_unused = config.deterministic or len(objective.operator.domains) > 1 or config.model.is_own
    if find_unused and torch_dist.get_backend() == "fake":
        # trainer/workload: the wrapper reads values that say which parameters were used, and fake tensors
        # have none. The bare model does the same work in the same memory: gradients are views of the buckets.
        return objective
    return DistributedDataParallel(
        objective,
        device_ids=[device.index] if device.type == "cuda" else None,
        gradient_as_bucket_view=True,
        find_unused_parameters=find_unused,
        # A fake group (trainer/workload) has no other ranks to compare weights with. Older torch lacks this
        # option.
        **({"init_sync": False} if torch_dist.get_backend() == "fake" else {}),
        **without_buffer_sync(DistributedDataParallel),
    )


def without_buffer_sync(wrapper: type[nn.Module]) -> dict[str, bool]:
    """Return the option that keeps the wrapper from broadcasting buffers in each forward pass.

    Buffers are constants here. Older torch, which a user's image may have, names the option differently.
    """
    new, old = "forward_sync_buffers", "broadcast_buffers"
    return {new if new in signature(wrapper).parameters else old: False}


def _ddp_gradient_sync(model: nn.Module, last: bool) -> AbstractContextManager:
    """Exchange gradients in the last pass of a step only."""
    if last or not isinstance(model, DistributedDataParallel):
        return nullcontext()
    return model.no_sync()


def _shard_blocks(objective: Objective, config: TrainConfig, device: torch.device) -> nn.Module:
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
        # What `selective` computes again has to gather as the forward pass did: each time.
        gathers = module in fp32_modules and config.activation_checkpointing == "selective"
        fully_shard(
            module,
            mesh=mesh,
            # Parameters outside of blocks are few, and needed again at once: they stay gathered, and in fp32,
            # the type of the gradients that earlier turns left; a task's own parts may have none yet.
            reshard_after_forward=(gathers or config.fsdp2.reshard_after_forward) and module not in networks,
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
def _fsdp2_gradient_sync(model: Objective, last: bool) -> Iterator[None]:
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


STRATEGIES = {
    "single": Strategy(wrap=_wrap_single, gradient_sync=lambda *_: nullcontext(), sharded=False),
    "ddp": Strategy(wrap=_wrap_ddp, gradient_sync=_ddp_gradient_sync, sharded=False),
    "fsdp2": Strategy(wrap=_shard_blocks, gradient_sync=_fsdp2_gradient_sync, sharded=True),
}
