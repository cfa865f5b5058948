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
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather, DefaultReduceScatter
from torch.distributed.fsdp._fully_shard._fsdp_common import TrainingState

from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.models.precision import DTYPES, is_half
from vastrun.trainer.models.weights import materialise, move_buffers
from vastrun.trainer.stages.objective import Objective
from vastrun.trainer.strategies.strategy import OomVote, Strategy

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


@contextmanager
def dry_run(model: Objective, vote: OomVote) -> Iterator[Objective]:
    """Prepare a dry run: before each message of FSDP2, once its buffers are allocated, a hook votes."""
    units = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for unit in units:
        unit.set_custom_all_gather(_VotingAllGather(vote))
        unit.set_custom_reduce_scatter(_VotingReduceScatter(vote))
    try:
        yield model
    finally:
        for unit in units:
            unit.set_custom_all_gather(DefaultAllGather())
            unit.set_custom_reduce_scatter(DefaultReduceScatter())
        # A failed attempt leaves FSDP2's hooks in the middle of a pass; the next step needs a clean state.
        for network in model.networks:
            reset_iteration(network)


class _VotingAllGather(DefaultAllGather):
    def __init__(self, vote: OomVote) -> None:
        self._vote = vote

    def __call__(self, *buffers: Any, **options: Any) -> torch_dist.Work | None:
        self._vote()
        return super().__call__(*buffers, **options)


class _VotingReduceScatter(DefaultReduceScatter):
    def __init__(self, vote: OomVote) -> None:
        self._vote = vote

    def __call__(self, *buffers: Any, **options: Any) -> torch_dist.Work | None:
        self._vote()
        return super().__call__(*buffers, **options)


FSDP2 = Strategy(wrap=wrap, gradient_sync=gradient_sync, dry_run=dry_run, sharded=True)


def reset_iteration(root: FSDPModule) -> None:
    """Wait for the messages of a failed pass, reshard all weights, and drop its gradients.

    `root` is the module whose forward pass starts an iteration.
    """
    if hasattr(root, "reset_iter_state"):
        root.reset_iter_state()
    else:
        _reset_iteration_state(root._get_fsdp_state())
    _drop_whole_gradients(root)


def _reset_iteration_state(root: Any) -> None:
    """Do what `reset_iter_state` of torch 2.13 does, which torch 2.11 and 2.12 do not have."""
    context, stream = root._comm_ctx, root._device_handle.current_stream()
    # The first forward pass sets these; an attempt may have failed before it. torch 2.12 has the plural.
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
    """Make the stream wait for the event; on a CPU there is none."""
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
