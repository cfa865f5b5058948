"""Plain torch: DDP ranks that save one file every five steps, and continue from it with the same numbers."""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from vastrun import beat
from vastrun.integrations import STOPPED, StopAgreement, leave

STEPS, SAVE_EVERY = 40, 5
STEP_S = float(os.environ.get("STEP_S", "0"))  # makes the steps as slow as those of a larger model

parser = argparse.ArgumentParser()
parser.add_argument("--resume")
args = parser.parse_args()

dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
rank = dist.get_rank()
local_rank = int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Dropout(0.1), nn.Linear(64, 1)).to(device)
model = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
torch.manual_seed(1 + rank)  # each rank draws its own samples
step = 0

if args.resume:
    state = torch.load(args.resume, map_location=device, weights_only=True)
    net.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random_states"][rank].cpu())
    step = state["step"]
if rank == 0:
    print(f"starts after step {step}", flush=True)

stop = StopAgreement()
Path("checkpoints").mkdir(exist_ok=True)
while step < STEPS and not stop.stopped:
    x = (torch.rand(64, 1) * 6 - 3).to(device)
    loss = nn.functional.mse_loss(model(x), torch.sin(x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    time.sleep(STEP_S)
    if rank == 0:
        print(f"step {step} loss {loss.item():.5f}", flush=True)
    if step % SAVE_EVERY == 0:
        beat(step, loss=loss)
    else:
        beat(step)
    if stop.should_stop() or step % SAVE_EVERY == 0:
        random_states = [None] * dist.get_world_size()
        dist.all_gather_object(random_states, torch.get_rng_state())
        if rank == 0:
            state = {"step": step, "model": net.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**state, "random_states": random_states}, f"checkpoints/step_{step}.pt")
            print(f"saved step {step}", flush=True)

if stop.stopped:
    leave(STOPPED)
if rank == 0:
    Path("results").mkdir(exist_ok=True)
    torch.save(net.state_dict(), "results/weights.pt")
dist.barrier()
leave()
