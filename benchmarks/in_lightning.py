"""The same workload in Lightning, with its own checkpoints, and nothing else on that can be turned off."""

from __future__ import annotations

from collections.abc import Iterator

import lightning
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

from benchmarks.workload import Workload
from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.strategies import without_buffer_sync


class Stream(IterableDataset[Windows]):
    """This rank's batches, ready made."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload

    def __iter__(self) -> Iterator[Windows]:
        return self._workload.batches()


class Module(lightning.LightningModule):
    """The model and how it learns."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.objective = workload.objective
        self._workload = workload

    def transfer_batch_to_device(self, batch: Windows, *_: object) -> Windows:
        return batch  # it is there; and Lightning copies no frozen dataclass

    def training_step(self, batch: Windows) -> Tensor:
        return self.objective(batch)

    def on_train_batch_end(self, outputs: dict[str, Tensor], *_: object) -> None:
        self._workload.report(self.global_step, outputs["loss"])

    def configure_optimizers(self) -> dict[str, object]:
        optimizer = self._workload.optimizer(self.objective)
        schedule = self._workload.schedule(optimizer)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main() -> None:
    workload = Workload.of_environment()
    every = workload.config.checkpoint_every
    trainer = lightning.Trainer(
        accelerator="gpu" if workload.device.type == "cuda" else "cpu",
        devices=workload.world_size,
        strategy=DDPStrategy(gradient_as_bucket_view=True, **without_buffer_sync(DistributedDataParallel)),
        max_steps=workload.config.steps,
        gradient_clip_val=workload.config.optim.clip,
        use_distributed_sampler=False,
        logger=False,
        callbacks=[ModelCheckpoint(workload.box / "by-hand", every_n_train_steps=every)],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(workload), DataLoader(Stream(workload), batch_size=None))
    workload.end()


if __name__ == "__main__":
    main()
