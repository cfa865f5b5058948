"""The same course in Lightning, with its own checkpoints, and nothing else on that can be turned off."""

from __future__ import annotations

from collections.abc import Iterator

import lightning
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from benchmarks.course import Course
from trainer.data.trajectories import Windows


class Stream(IterableDataset[Windows]):
    """This rank's batches, ready made."""

    def __init__(self, course: Course) -> None:
        self._course = course

    def __iter__(self) -> Iterator[Windows]:
        return self._course.batches()


class Module(lightning.LightningModule):
    """The model and how it learns."""

    def __init__(self, course: Course) -> None:
        super().__init__()
        self.objective = course.objective
        self._course = course

    def transfer_batch_to_device(self, batch: Windows, *_: object) -> Windows:
        return batch  # it is there; and Lightning copies no frozen dataclass

    def training_step(self, batch: Windows) -> Tensor:
        return self.objective(batch)

    def on_train_batch_end(self, outputs: dict[str, Tensor], *_: object) -> None:
        self._course.tell(self.global_step, outputs["loss"])

    def configure_optimizers(self) -> dict[str, object]:
        optimizer = self._course.optimizer(self.objective)
        schedule = self._course.schedule(optimizer)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main() -> None:
    course = Course.of_environment()
    every = course.config.checkpoint_every
    trainer = lightning.Trainer(
        accelerator="gpu" if course.device.type == "cuda" else "cpu",
        devices=course.world_size,
        strategy=DDPStrategy(gradient_as_bucket_view=True, forward_sync_buffers=False),
        max_steps=course.config.steps,
        gradient_clip_val=course.config.optim.clip,
        use_distributed_sampler=False,
        logger=False,
        callbacks=[ModelCheckpoint(course.box / "by-hand", every_n_train_steps=every)],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(course), DataLoader(Stream(course), batch_size=None))
    course.end()


if __name__ == "__main__":
    main()
