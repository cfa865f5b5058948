"""A small model, its optimiser and its average, spread over the ranks by each strategy."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from vastrun.trainer.checkpoints import Checkpointer, ScoredFolder, TrainerState, tensors_of
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.engine.ema import Ema

BATCH = 12


class Training:
    """Steps that are the same for any number of ranks, and checkpoints of them."""

    def __init__(self, ranks: Ranks, folder: Path, strategy: str = "single", *, width: int = 50) -> None:
        torch.manual_seed(0)
        self.ranks = ranks
        # Three rows are fewer than four ranks; 50 is no multiple of them.
        self.inner = nn.Sequential(nn.Linear(30, width), nn.LayerNorm(width), nn.Linear(width, 3))
        self.model = _spread(self.inner, strategy, ranks.rank.world_size)
        self.optimizer = torch.optim.AdamW(self.inner.parameters(), fused=True)
        self.ema = Ema(self.inner, 0.9)
        self.folder = folder
        kept = ScoredFolder(path=folder, keep=2, keep_best=True)
        self.checkpoints = Checkpointer(kept, ranks, sharded=strategy == "fsdp2")
        self.step = 0

    def tensors(self) -> dict[str, Tensor]:
        return tensors_of(self.inner, [self.optimizer], self.ema.state_dict())

    def resume(self) -> tuple[str, ...]:
        """Continues from the newest intact checkpoint, if any; a line for each that was not intact."""
        found = self.checkpoints.newest(else_of=self.folder.parent / "resume")
        if found is None:
            return ()
        self.checkpoints.load(found, self.tensors())
        self.step = found.state.step
        return found.faults

    def train(self, until: int) -> list[float]:
        """The losses of the global batch, which is the same at each step for any number of ranks."""
        return [self._train() for _ in range(self.step, until)]

    def save(self, *, durable: bool = True) -> None:
        done = {"step": self.step, "samples": self.step * BATCH, "loss": 1.0}
        state = TrainerState(**done, config={}, made_by={}, scaler={})
        self.checkpoints.save(state, self.tensors(), durable=durable)

    def _train(self) -> float:
        batch = torch.randn(BATCH, 30, generator=torch.Generator().manual_seed(self.step))
        mine = batch.tensor_split(self.ranks.rank.world_size)[self.ranks.rank.rank]
        loss = self.model(mine).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.ema.update(self.step)
        self.step += 1
        (mean,) = self.ranks.mean_of(loss.detach())
        return mean


def _spread(model: nn.Sequential, strategy: str, world_size: int) -> nn.Module:
    if strategy == "ddp":
        return DistributedDataParallel(model)
    if strategy == "fsdp2":
        mesh = init_device_mesh("cpu", (world_size,))
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model
