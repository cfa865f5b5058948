"""accelerate: ranks that save a folder by `save_state` every five steps, and continue within an epoch."""

import os
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from vastrun.integrations import STOPPED, leave
from vastrun.integrations.accelerate import AccelerateLoop

STEPS, SAVE_EVERY = 40, 5
STEP_S = float(os.environ.get("STEP_S", "0"))  # makes the steps as slow as those of a larger model

accelerator = Accelerator(
    cpu=not torch.cuda.is_available(),
    dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True),
)
torch.manual_seed(0)
x = torch.rand(512, 1) * 6 - 3
net = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1))
net, optimizer, loader = accelerator.prepare(
    net,
    torch.optim.Adam(net.parameters(), lr=1e-2),
    DataLoader(TensorDataset(x, torch.sin(x)), batch_size=32, shuffle=True),
)
loop = AccelerateLoop(accelerator, save_every=SAVE_EVERY, report_every=5)
step = loop.resume()
accelerator.print(f"starts after step {step}", flush=True)

while step < STEPS and not loop.stopped:
    epoch, batches_done = divmod(step, len(loader))
    rest = accelerator.skip_first_batches(loader, batches_done)
    rest.set_epoch(epoch)
    for inputs, targets in rest:
        loss = nn.functional.mse_loss(net(inputs), targets)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        step += 1
        time.sleep(STEP_S)
        accelerator.print(f"step {step} loss {loss.item():.5f}", flush=True)
        should_stop = loop.end_step(step, loss=loss)
        if step % SAVE_EVERY == 0:
            accelerator.print(f"saved step {step}", flush=True)
        if should_stop or step == STEPS:
            break

if loop.stopped:
    leave(STOPPED)
if accelerator.is_main_process:
    Path("results").mkdir(exist_ok=True)
    torch.save(accelerator.unwrap_model(net).state_dict(), "results/weights.pt")
accelerator.wait_for_everyone()
leave()
