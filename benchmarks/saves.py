"""A rank of torchrun that trains a stack of layers and saves it in turns: training on, and standing still.

`python -m benchmarks.saves STRATEGY GPUS ROUNDS`; rank 0 prints a line of JSON a round, of the slowest rank.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.program import ProgramSpec
from vastrun.trainer.checkpoints import Checkpointer, ScoredFolder, TrainerState, tensors_of
from vastrun.trainer.distributed.group import Ranks, join
from vastrun.trainer.distributed.rank import Rank

LAYERS, WIDTH = 20, 1024
BYTES = LAYERS * (WIDTH + 1) * WIDTH * 4 * 3
"""Of a checkpoint: weights and two moments."""
STEPS = 4
"""Between two saves."""


@dataclass(frozen=True, kw_only=True)
class LiveDownloads:
    """One training and its checkpoints."""

    ranks: Ranks
    model: nn.Module
    layers: nn.Sequential
    optimizer: torch.optim.Optimizer
    checkpoints: Checkpointer

    def step(self) -> float:
        began = time.perf_counter()
        self.optimizer.zero_grad()
        self.model(torch.randn(8, WIDTH, device=self.ranks.device)).square().mean().backward()
        self.optimizer.step()
        self.ranks.mean_of(torch.zeros((), device=self.ranks.device))
        return time.perf_counter() - began

    def save(self, step: int, *, durable: bool) -> float:
        state = TrainerState(step=step, samples=0, loss=None, config={}, made_by={}, scaler={})
        self.ranks.wait_for_all()
        began = time.perf_counter()
        self.checkpoints.save(state, tensors_of(self.layers, [self.optimizer], None), durable=durable)
        return time.perf_counter() - began

    def begin(self) -> None:
        """The first step, after which a training gets the memory for its checkpoints ready."""
        self.step()
        self.checkpoints.prepare(tensors_of(self.layers, [self.optimizer], None))

    def round(self, number: int) -> Iterator[tuple[str, float]]:
        """What took how long on this rank."""
        yield "step_s", statistics.median(self.step() for _ in range(STEPS))
        yield "stall_s", self.save(2 * number, durable=False)
        began = time.perf_counter()
        yield "step_meanwhile_s", statistics.median(self.step() for _ in range(STEPS))
        self.checkpoints.wait()
        yield "done_s", time.perf_counter() - began
        yield "durable_s", self.save(2 * number + 1, durable=True)


def main() -> None:
    strategy, gpus, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    program = ProgramSpec(kind="train")
    job = Job(run_id="saves", ranks=1, gpus=gpus, program=program, stall_s=60, start_s=60)
    ranks = join(Rank.of_environment(), job)
    saving = _saving(ranks, strategy)
    saving.begin()
    for number in range(1, rounds + 1):
        names, times = zip(*saving.round(number), strict=True)
        slowest = ranks.all_reduce_max(*times)
        if ranks.rank.is_first:
            print("\n" + json.dumps(dict(zip(names, slowest, strict=True))), flush=True)
    ranks.wait_for_all()
    os._exit(0)


def _saving(ranks: Ranks, strategy: str) -> LiveDownloads:
    torch.manual_seed(0)
    layers = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))).to(ranks.device)
    if strategy == "fsdp2":
        for layer in layers:
            fully_shard(layer)
        fully_shard(layers)
    folder = ScoredFolder(path=ranks.rank.box / layout.CHECKPOINTS, keep=2, keep_best=False)
    return LiveDownloads(
        ranks=ranks,
        model=DistributedDataParallel(layers) if strategy == "ddp" else layers,
        layers=layers,
        optimizer=torch.optim.AdamW(layers.parameters(), fused=True),
        checkpoints=Checkpointer(folder, ranks, sharded=strategy == "fsdp2"),
    )


if __name__ == "__main__":
    main()
