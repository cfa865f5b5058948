"""The same small network in Lightning, which finds the other ranks by torchrun's variables."""

import argparse
import os

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from vastrun.integrations import leave, resume_path
from vastrun.integrations.lightning import LightningCallback


class Sine(lightning.LightningModule):
    """Learns a sine."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1))

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x), y)
        if (step := self.global_step + 1) % 50 == 0:
            self.print(f"step {step} loss {loss.item():.5f}", flush=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps

    lightning.seed_everything(0)
    local, world = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
    trainer = lightning.Trainer(
        devices=local,
        num_nodes=world // local,
        strategy="ddp",
        max_steps=steps,
        callbacks=[LightningCallback("checkpoints")],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    x = torch.rand(8192, 1) * 6 - 3
    loader = DataLoader(TensorDataset(x, torch.sin(x)), batch_size=256, shuffle=True)
    trainer.fit(Sine(), loader, ckpt_path=resume_path())
    trainer.save_checkpoint("results/model.ckpt")
    leave()  # gloo's threads may abort a Python that takes itself down (pytorch issue 190489)


if __name__ == "__main__":
    main()
