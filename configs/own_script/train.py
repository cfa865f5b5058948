"""Data-parallel training in plain PyTorch: a small network learns a sine and tells vastrun its step."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from vastrun import beat
from vastrun.integrations import STOPPED, StopAgreement, leave


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps

    device, rank = join_group()
    loss = train(steps, device, rank)
    if rank == 0 and loss is not None:
        print(f"final loss {loss:.5f}", flush=True)
    dist.destroy_process_group()
    # gloo's threads may abort a Python that takes itself down (pytorch issue 190489)
    leave(STOPPED if loss is None else 0)


def join_group() -> tuple[torch.device, int]:
    """This rank's device and number."""
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    return device, dist.get_rank()


def train(steps: int, device: torch.device, rank: int) -> float | None:
    """The last loss, averaged over the ranks; rank 0 leaves the model in results/. None: it was stopped."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1)).to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    batches = torch.Generator().manual_seed(rank)
    loss = torch.zeros((), device=device)
    stop = StopAgreement()
    for step in range(1, steps + 1):
        x = (torch.rand(256, 1, generator=batches) * 6 - 3).to(device)
        loss = nn.functional.mse_loss(model(x), torch.sin(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            beat(step, loss=loss)  # the curve in the report; it waits for the GPU
        else:
            beat(step)
        if rank == 0 and step % 50 == 0:
            print(f"step {step} loss {loss.item():.5f}", flush=True)
        if stop.should_stop():
            return None
    save(model.module, rank)
    mean = loss.detach()
    dist.all_reduce(mean)
    return float(mean) / dist.get_world_size()


def save(model: nn.Module, rank: int) -> None:
    if rank == 0:
        Path("results").mkdir(exist_ok=True)
        torch.save(model.state_dict(), "results/model.pt")


if __name__ == "__main__":
    main()
