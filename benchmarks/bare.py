"""The loop that one would write by hand, for each strategy, tuned as well as ours."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from benchmarks.workload import Workload
from vastrun.trainer.strategies import without_buffer_sync


def main() -> None:
    workload = Workload.of_environment()
    way = WAYS[workload.config.strategy]
    if workload.config.strategy != "single":
        dist.init_process_group("nccl" if workload.device.type == "cuda" else "gloo")
    model = way.wrap(workload)
    optimizer = workload.optimizer(model)
    schedule = workload.schedule(optimizer)
    for done, windows in enumerate(workload.batches(), start=1):
        loss = model(windows)
        optimizer.zero_grad()
        loss.backward()
        way.clip(model, workload.config.optim.clip)
        optimizer.step()
        schedule.step()
        workload.report(done, loss)
        if folder := workload.saves_after(done):
            way.save(folder, model, optimizer)
    if workload.config.strategy != "single":
        dist.barrier()
    workload.end()


def _replicated(workload: Workload) -> nn.Module:
    return DistributedDataParallel(
        workload.objective,
        device_ids=[workload.device.index] if workload.device.type == "cuda" else None,
        gradient_as_bucket_view=True,
        **without_buffer_sync(DistributedDataParallel),  # they are constants
    )


def _sharded(workload: Workload) -> nn.Module:
    """Block by block. What belongs to no block is needed again at once: it stays whole."""
    operator = workload.objective.operator
    mesh = init_device_mesh(workload.device.type, (workload.world_size,))
    for block in operator.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=workload.config.fsdp2.reshard_after_forward)
    fully_shard(operator, mesh=mesh, reshard_after_forward=False)
    workload.objective.register_forward_pre_hook(lambda *_: _exchange_once(operator))
    return workload.objective


def _exchange_once(operator: FSDPModule) -> None:
    """A step uses the operator once a frame. Gradients are exchanged when the backward pass comes to the
    first use, its last: by itself FSDP2 would send them after each."""

    def at_first_use(_: nn.Module, __: tuple[object, ...], prediction: Tensor) -> None:
        hook.remove()
        prediction.register_hook(lambda _: operator.set_requires_gradient_sync(True))

    operator.set_requires_gradient_sync(False)
    hook = operator.register_forward_hook(at_first_use)


@torch.no_grad()
def _clip_shards(model: nn.Module, max_norm: float) -> None:
    """The same on this rank's shards: each operation on DTensors would cost the host many times as much."""
    shards = [p.grad.to_local() for p in model.parameters()]
    square = torch.stack(torch._foreach_norm(shards)).square().sum()
    dist.all_reduce(square)
    torch._foreach_mul_(shards, (max_norm / (square.sqrt() + 1e-6)).clamp(max=1.0))


def _save(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Rank 0 does."""
    if dist.is_initialized() and dist.get_rank():
        return
    folder.mkdir(parents=True)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, folder / "checkpoint.pt")


def _save_shards(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=folder)


@dataclass(frozen=True, kw_only=True)
class Way:
    """What differs between the strategies."""

    wrap: Callable[[Workload], nn.Module]
    clip: Callable[[nn.Module, float], None] = lambda model, most: clip_grad_norm_(
        model.parameters(), most, foreach=True
    )
    save: Callable[[Path, nn.Module, torch.optim.Optimizer], None] = _save


WAYS = {
    "single": Way(wrap=lambda workload: workload.objective),
    "ddp": Way(wrap=_replicated),
    "fsdp2": Way(wrap=_sharded, clip=_clip_shards, save=_save_shards),
}

if __name__ == "__main__":
    main()
