"""Trains 20 steps with DDP where there is torch; else it only counts them. For Python 3.9 and newer."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from vastrun import beat

STEPS = 20


def main() -> None:
    """Train, and leave a model."""
    outputs = Path(os.environ["VASTRUN_OUTPUTS"])
    torch = train(outputs) if find_spec("torch") else count(outputs)
    print("torch", torch, "Python", sys.version.split()[0])


def train(outputs: Path) -> str:
    """Train with DDP on the CPU. Return the version of torch."""
    import torch
    import torch.distributed as torch_dist
    from torch.nn.parallel import DistributedDataParallel

    torch_dist.init_process_group("gloo")
    torch.manual_seed(torch_dist.get_rank())
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, STEPS + 1):
        loss = model(torch.randn(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        beat(step, loss=loss)
    weights = model.module.weight.detach().clone()
    torch_dist.broadcast(weights, 0)
    assert torch.equal(weights, model.module.weight), "the ranks have different weights"
    assert torch_dist.get_world_size() == int(os.environ["WORLD_SIZE"])
    if torch_dist.get_rank() == 0:
        torch.save(model.module.state_dict(), outputs / "model.pt")
    torch_dist.destroy_process_group()
    return torch.__version__


def count(outputs: Path) -> str:
    """Report steps. Return what there is of torch."""
    for step in range(1, STEPS + 1):
        beat(step, loss=1 / step)
    if os.environ["RANK"] == "0":
        (outputs / "model.txt").write_text("none\n")
    return "none"


if __name__ == "__main__":
    main()
