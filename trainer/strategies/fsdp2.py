"""FSDP2: every rank holds a part of each parameter; a block is whole only while it computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as torch_dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather, DefaultReduceScatter
from torch.distributed.fsdp._fully_shard._fsdp_common import TrainingState

from vastrun.contract.config import TrainConfig
from vastrun.trainer.models.precision import DTYPES, is_half
from vastrun.trainer.models.weights import materialise, move_buffers
from vastrun.trainer.stages.objective import Objective
from vastrun.trainer.strategies.strategy import Ask, Strategy

_EXACT = MixedPrecisionPolicy(cast_forward_inputs=False)


def wrap(objective: Objective, config: TrainConfig, device: torch.device) -> nn.Module:
    """Shard block by block, as soon as a block has its weights: no rank ever holds the whole model."""
    networks = objective.networks
    exact = {module for network in networks for module in network.exact}
    units = {*networks, *exact, *(block for network in networks for block in network.blocks)}
    # Ranks are numbers, also where the weights hold none (trainer/workload).
    with unset_fake_temporarily():
        mesh = init_device_mesh(device.type, (torch_dist.get_world_size(),))

    def shard(module: nn.Module) -> None:
        if module not in units:
            return
        fully_shard(
            module,
            mesh=mesh,
            # What belongs to no block is small, and needed again at once: it stays whole, and in fp32. That
            # is the type of gradients that earlier turns left; a task's own parts may have none yet.
            reshard_after_forward=config.fsdp2.reshard_after_forward and module not in networks,
            mp_policy=_EXACT if module in exact or module in networks else _precision(config),
            offload_policy=CPUOffloadPolicy() if config.fsdp2.cpu_offload else OffloadPolicy(),
        )

    materialise(objective, when_drawn=shard)
    # FSDP2 moves what belongs to a network. The noise that the later stages draw from belongs to none.
    move_buffers(objective, device)
    return objective


def _precision(config: TrainConfig) -> MixedPrecisionPolicy:
    """Send and use weights in the small type, add gradients up in fp32. Autocast casts the inputs."""
    if not is_half(config.precision):
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(
        param_dtype=DTYPES[config.precision], reduce_dtype=torch.float32, cast_forward_inputs=False
    )


@contextmanager
def passes(model: Objective, last: bool) -> Iterator[None]:
    """Keep the gradients of all passes whole on this rank until the last backward pass.

    The model is used once a frame. What all uses and all micro-batches gave is sent when that pass comes to
    the first use, block by block.
    """
    learner = model.learner

    def at_first_use(learner: nn.Module, _: Any, prediction: Tensor) -> None:
        hook.remove()
        # Backward comes to the first use last: by then all gradients are there.
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


@contextmanager
def rehearsal(model: Objective, ask: Ask) -> Iterator[Objective]:
    """Prepare a try: all messages of FSDP2 go through hooks that ask first, when the buffers are there."""
    units = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for unit in units:
        unit.set_custom_all_gather(_AskedAllGather(ask))
        unit.set_custom_reduce_scatter(_AskedReduceScatter(ask))
    try:
        yield model
    finally:
        for unit in units:
            unit.set_custom_all_gather(DefaultAllGather())
            unit.set_custom_reduce_scatter(DefaultReduceScatter())
        # A try that failed leaves the hooks in the middle of a pass; the next step must not find them there.
        for network in model.networks:
            reset_iteration(network)


class _AskedAllGather(DefaultAllGather):
    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def __call__(self, *buffers: Any, **options: Any) -> torch_dist.Work | None:
        self._ask()
        return super().__call__(*buffers, **options)


class _AskedReduceScatter(DefaultReduceScatter):
    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def __call__(self, *buffers: Any, **options: Any) -> torch_dist.Work | None:
        self._ask()
        return super().__call__(*buffers, **options)


FSDP2 = Strategy(wrap=wrap, passes=passes, rehearsal=rehearsal, sharded=True)


def reset_iteration(root: FSDPModule) -> None:
    """Wait for the messages of a failed pass, shard all weights again, and drop what it computed.

    `root` is the module whose forward pass begins an iteration.
    """
    if hasattr(root, "reset_iter_state"):
        root.reset_iter_state()
    else:
        _reset_by_hand(root._get_fsdp_state())
    _drop_whole_gradients(root)


def _reset_by_hand(root: Any) -> None:
    """Do what `reset_iter_state` of torch 2.13 does, which torch 2.11 and 2.12 do not have."""
    context, stream = root._comm_ctx, root._device_handle.current_stream()
    # The first forward pass sets these; a try may have failed before it. torch 2.12 has the plural.
    gathered, reduced = (getattr(context, f"{name}_state", None) for name in ("all_gather", "reduce_scatter"))
    for message in (gathered, reduced, *getattr(context, "reduce_scatter_states", ())):
        _wait(stream, message and message.event)
    context.all_gather_state = context.reduce_scatter_state = None
    context.reduce_scatter_states, context.post_forward_order = [], []
    for state in root._state_ctx.all_states:
        state._modules_to_run_forward.clear()
        state._training_state = TrainingState.IDLE
        for group in _groups(state):
            _reset_group(group, stream)
    root._state_ctx.iter_forward_root = None
    root._state_ctx.post_backward_final_callback_queued = False


def _reset_group(group: Any, stream: Any) -> None:
    if (gathered := group._all_gather_result) is not None:
        _wait(stream, gathered.all_gather_event)
        if isinstance(gathered.all_gather_work, torch_dist.Work):
            gathered.all_gather_work.wait()
        group._all_gather_result = None
    _wait(stream, group._post_reduce_event)
    _wait(stream, group._all_reduce_state and group._all_reduce_state.event)
    group._wait_all_gather_streams_on_event(group._reshard_after_forward_event)
    group._post_reduce_event = group._all_reduce_state = group._reshard_after_forward_event = None
    group._partial_reduce_output = None
    group._post_forward_indices.clear()
    group._training_state = TrainingState.IDLE
    group._to_sharded()


def _wait(stream: Any, event: Any) -> None:
    """Make the stream wait for the event, where there is one: a CPU has none."""
    if event is not None:
        stream.wait_event(event)


def _drop_whole_gradients(root: FSDPModule) -> None:
    """Drop gradients of whole parameters, which a failed backward pass leaves behind.

    `reset_iter_state` of torch 2.13 forgets them, and they would be added to the next ones.
    """
    for module in root.modules():
        if not isinstance(module, FSDPModule):
            continue
        for group in _groups(module._get_fsdp_state()):
            for parameter in group.fsdp_params:
                # Since torch 2.15 it is no attribute of its own, but the gradient below.
                if "unsharded_accumulated_grad" in vars(parameter):
                    parameter.unsharded_accumulated_grad = None
                if hasattr(parameter, "_unsharded_param"):
                    parameter._unsharded_param.grad = None


def _groups(state: Any) -> Iterator[Any]:
    """Yield the parameter groups of a module: torch 2.11 has at most one, later torch several."""
    if hasattr(state, "_fsdp_param_groups"):
        yield from state._fsdp_param_groups
    elif state._fsdp_param_group is not None:
        yield state._fsdp_param_group
