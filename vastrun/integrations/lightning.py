"""Lightning: a callback for the Trainer of Lightning, of the package `lightning` or `pytorch_lightning`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vastrun import beat
from vastrun.integrations.program import STOPPED, StopAgreement, numbers_of

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import Callback
elif "pytorch_lightning" in sys.modules and "lightning" not in sys.modules:
    from pytorch_lightning.callbacks import Callback
else:
    try:
        from lightning.pytorch.callbacks import Callback
    except ModuleNotFoundError:
        from pytorch_lightning.callbacks import Callback


class TrainingStopped(SystemExit):
    """The training was stopped, and its checkpoint is saved. Uncaught, it ends the program with code 143."""


class LightningCallback(Callback):
    """Reports each step and what the module logs, and saves and stops when vastrun asks it to.

        trainer = Trainer(callbacks=[LightningCallback(), ModelCheckpoint(dirpath="checkpoints")])
        trainer.fit(model, loader, ckpt_path=resume_path())

    All ranks stop after the same batch: they save `stopped-epoch=E-step=S.ckpt` and raise TrainingStopped
    in `fit`, which so runs no validation and saves no checkpoint of an epoch that has not ended. Lightning
    continues within an epoch with the same samples where the loader has a `state_dict`, as torchdata's
    StatefulDataLoader; any other loader begins its epoch again.

    Takes the place of Lightning's own handler of SIGTERM while it fits: that one starts a collective, in
    which ranks can wait for each other for ever (Lightning 2.6).
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        """`folder`: of the checkpoint of a stop; None: that of the first ModelCheckpoint, if there is one."""
        self._folder = folder
        self._stop: StopAgreement | None = None
        self._step = 0
        """Optimizer steps done before the batch."""
        self._training_names: frozenset[str] = frozenset()
        """Names that were reported of the training: what else is there is of the validation."""

    @property
    def stopped(self) -> bool:
        """True when the training was stopped before its end."""
        return self._stop is not None and self._stop.stopped

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note SIGTERM from now on: Lightning has set its own handler."""
        self._stop, self._step = StopAgreement(), trainer.global_step

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Report the step; save and raise TrainingStopped where all ranks agreed to stop."""
        step = trainer.global_step
        if step == self._step:  # gradients are accumulated, which no checkpoint has
            return
        self._step = step
        if step % trainer.log_every_n_steps == 0:
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            metrics = {**({} if loss is None else {"loss": loss}), **trainer.callback_metrics}
            self._training_names = frozenset(metrics)
            beat(step, **numbers_of(metrics))
        else:
            beat(step)
        # A training that has done its last step has not been stopped. The ranks know that together.
        if step != trainer.max_steps and self._stop is not None and self._stop.should_stop():
            self._save(trainer)
            raise TrainingStopped(STOPPED)

    def on_validation_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Report progress of the validation, or of the test."""
        beat(trainer.global_step, "eval")

    on_test_batch_end = on_validation_batch_end

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report the scores of the validation."""
        if not trainer.sanity_checking:
            beat(trainer.global_step, **numbers_of(trainer.callback_metrics, self._training_names))

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Report that a checkpoint is written, which may take longer than a step."""
        beat(trainer.global_step, "checkpoint")

    def _save(self, trainer: Trainer) -> None:
        folder = self._folder or getattr(trainer.checkpoint_callback, "dirpath", None)
        if folder is None:
            if trainer.is_global_zero:
                print("stopped without a checkpoint: there is no ModelCheckpoint, and no folder", flush=True)
            return
        name = f"stopped-epoch={trainer.current_epoch}-step={trainer.global_step}.ckpt"
        trainer.save_checkpoint(Path(folder) / name)
        if trainer.is_global_zero:
            print(f"stopped; saved {name}", flush=True)
