"""Lightning: a small network with a ModelCheckpoint that saves one file after each epoch of five steps."""

import os
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from vastrun.integrations import leave, resume_path
from vastrun.integrations.lightning import LightningCallback

EPOCHS, STEPS_OF_EPOCH = 8, 5
STEP_S = float(os.environ.get("STEP_S", "0"))  # makes the steps as slow as those of a larger model


class Sine(lightning.LightningModule):
    """Learns a sine."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1))

    def training_step(self, batch):
        x, y = batch
        time.sleep(STEP_S)
        return nn.functional.mse_loss(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


class ResumableLoader(DataLoader):
    """A DataLoader with which Lightning continues within an epoch, as torchdata's StatefulDataLoader does."""

    done = first = 0

    def __iter__(self) -> Iterator[list[torch.Tensor]]:
        self.done, self.first = self.first, 0
        for batch in islice(super().__iter__(), self.done, None):
            self.done += 1
            yield batch

    def state_dict(self):
        return {"done": self.done}

    def load_state_dict(self, state):
        self.first = state["done"] % len(self)


class Report(lightning.Callback):
    """Prints the step at which the training starts, each step, and each that is saved."""

    def on_train_start(self, trainer, module):
        if trainer.is_global_zero:
            print(f"starts after step {trainer.global_step}", flush=True)
        self.first_step = trainer.global_step

    def on_train_batch_end(self, trainer, module, *_):
        if trainer.is_global_zero:
            print(f"step {trainer.global_step}", flush=True)

    def on_train_epoch_start(self, trainer, module):
        # The checkpoint of an epoch is written at its end.
        if trainer.is_global_zero and trainer.global_step > self.first_step:
            print(f"saved step {trainer.global_step}", flush=True)


def main():
    lightning.seed_everything(0)
    x = torch.rand(STEPS_OF_EPOCH * 2 * 32, 1) * 6 - 3
    trainer = lightning.Trainer(
        accelerator="auto" if torch.cuda.is_available() else "cpu",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        strategy="ddp",
        max_epochs=EPOCHS,
        callbacks=[
            Report(),
            LightningCallback(),
            ModelCheckpoint(dirpath="checkpoints", filename="{step}", save_top_k=-1),
        ],
        log_every_n_steps=STEPS_OF_EPOCH,
        logger=False,
        enable_progress_bar=False,
    )
    # Lightning shuffles by the number of the epoch, so that a later start reads the same batches.
    loader = ResumableLoader(TensorDataset(x, torch.sin(x)), batch_size=32, shuffle=True)
    model = Sine()
    trainer.fit(model, loader, ckpt_path=resume_path())
    if trainer.is_global_zero:
        Path("results").mkdir(exist_ok=True)
        torch.save(model.net.state_dict(), "results/weights.pt")
    trainer.strategy.barrier()
    leave()


if __name__ == "__main__":
    main()
