"""The loop one would write by hand: same model, data and optimiser as the trainer's, and nothing else.

A rank of `torchrun`; prints a line of JSON `{"step": ..., "at": ...}` every few steps.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from trainer import data
from trainer.config import TrainConfig
from trainer.models.latent_operator import LatentOperator
from trainer.objective import UnrollLoss
from trainer.optim import adamw, set_learning_rate
from trainer.records import read_as
from trainer.sampler import Space, picks
from trainer.schedule import Schedule


def main() -> None:
    box = Path(os.environ["VASTRUN_BOX"])
    config: TrainConfig = read_as(TrainConfig, json.loads((box / "job.json").read_text())["train"])
    torch.set_num_threads(config.threads)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(config.seed)
    task = data.make(config.data, box / "data")
    train = task.train
    operator = LatentOperator(config.model, points=train.points, conditions=train.conditions.shape[1])
    operator.normalise_by(train.fields)
    model = DistributedDataParallel(
        UnrollLoss(operator), gradient_as_bucket_view=True, forward_sync_buffers=False
    )
    optimizer = adamw(model, config.optim)
    schedule = Schedule(config.optim, config.steps)
    space = Space(trajectories=len(train), frames=train.frames, points=train.points, unroll=config.unroll)
    for step in range(config.steps):
        chosen = picks(config.seed, step, batch=config.batch, noise=config.noise, space=space)
        loss = model(task.batch(step, chosen.share(rank, world)))
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(model.parameters(), config.optim.clip)
        set_learning_rate(optimizer, schedule.rate(step))
        optimizer.step()
        done = step + 1
        if rank == 0 and (done == 1 or done % config.log_every == 0):
            print(json.dumps({"step": done, "at": time.time(), "loss": loss.item()}), flush=True)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
