"""Trains 20 steps with DDP where there is torch; else it only counts them. For Python 3.10 and newer.

Its first start saves a checkpoint and dies halfway; the second one goes on from it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

from vastrun import beat

STEPS = 20
STATE = "state/step.txt"


def main() -> None:
    """Train, and leave a model."""
    outputs = Path(os.environ["VASTRUN_OUTPUTS"])
    first = first_step(os.environ["VASTRUN_RESUME"])
    torch = train(outputs, first) if find_spec("torch") else count(outputs, first)
    print("torch", torch, "Python", sys.version.split()[0], "from step", first)


def train(outputs: Path, first: int) -> str:
    """Train with DDP on the CPU. Return the version of torch."""
    import torch
    import torch.distributed as torch_dist
    from torch.nn.parallel import DistributedDataParallel

    torch_dist.init_process_group("gloo")
    torch.manual_seed(torch_dist.get_rank())
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(first, STEPS + 1):
        loss = model(torch.randn(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        beat(step, loss=loss)
        die_after_saving(step)
    weights = model.module.weight.detach().clone()
    torch_dist.broadcast(weights, 0)
    assert torch.equal(weights, model.module.weight), "the ranks have different weights"
    assert torch_dist.get_world_size() == int(os.environ["WORLD_SIZE"])
    if torch_dist.get_rank() == 0:
        torch.save(model.module.state_dict(), outputs / "model.pt")
    torch_dist.destroy_process_group()
    return torch.__version__


def count(outputs: Path, first: int) -> str:
    """Report steps. Return what there is of torch."""
    for step in range(first, STEPS + 1):
        beat(step, loss=1 / step)
        die_after_saving(step)
    if os.environ["RANK"] == "0":
        (outputs / "model.txt").write_text("none\n")
    return "none"


def die_after_saving(step: int) -> None:
    """Save a checkpoint after one of the steps, and kill the rank that did once a snapshot has it."""
    if step == 10 and os.environ["RANK"] == "0":
        Path("checkpoints").mkdir(exist_ok=True)
        with ZipFile(f"checkpoints/step_{step}.pt", "w") as file:
            file.writestr(STATE, f"{step}")
        while not Path(os.environ["VASTRUN_RUN"], "checkpoints", "latest.json").exists():
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)


def first_step(resume: str) -> int:
    """Return the step that follows the checkpoint; 1 without one."""
    if not resume:
        return 1
    with ZipFile(resume) as file:
        return int(file.read(STATE)) + 1


if __name__ == "__main__":
    main()
