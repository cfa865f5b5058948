"""FSDP2 reset: a sharded network forgets a pass that failed, with every supported torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch.distributed as torch_dist
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_common import TrainingState


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
