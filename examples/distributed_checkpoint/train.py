"""torch.distributed.checkpoint: FSDP ranks that each save their part of a folder every five steps."""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from vastrun import beat
from vastrun.integrations import STOPPED, StopAgreement, leave

STEPS, SAVE_EVERY = 40, 5
STEP_S = float(os.environ.get("STEP_S", "0"))  # makes the steps as slow as those of a larger model

parser = argparse.ArgumentParser()
parser.add_argument("--resume")
args = parser.parse_args()

kind = "cuda" if torch.cuda.is_available() else "cpu"
dist.init_process_group("nccl" if kind == "cuda" else "gloo")
rank = dist.get_rank()
if kind == "cuda":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1)).to(kind)
fully_shard(model, mesh=init_device_mesh(kind, (dist.get_world_size(),)))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
torch.manual_seed(1 + rank)  # each rank draws its own samples
step = 0


def state_of_training():
    """Return what a checkpoint has; of the random states each rank saves its own."""
    weights, moments = get_state_dict(model, optimizer)
    random_state = {f"random_state_{rank}": torch.get_rng_state()}
    return {"model": weights, "optimizer": moments, "step": torch.tensor(step), **random_state}


if args.resume:
    state = state_of_training()
    dcp.load(state, checkpoint_id=args.resume)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    torch.set_rng_state(state[f"random_state_{rank}"])
    step = int(state["step"])
if rank == 0:
    print(f"starts after step {step}", flush=True)

stop = StopAgreement()
while step < STEPS and not stop.stopped:
    x = (torch.rand(64, 1) * 6 - 3).to(kind)
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
        dcp.save(state_of_training(), checkpoint_id=f"checkpoints/step_{step}")
        if rank == 0:
            print(f"saved step {step}", flush=True)

if stop.stopped:
    leave(STOPPED)
weights = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
if rank == 0:
    Path("results").mkdir(exist_ok=True)
    torch.save(weights, "results/weights.pt")
dist.barrier()
leave()
