"""Transformers: a callback for the Trainer of Hugging Face, and those built on it, such as trl's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState

from vastrun import Activity, beat
from vastrun.integrations.program import StopAgreement, numbers_of

_SUMMARY = "train_runtime"
"""Name that only the last log has: means over the whole training, which are no points of a curve."""


class TransformersCallback(TrainerCallback):
    """Reports each step and what the Trainer logs, and saves and stops when vastrun asks it to.

        supervised = TransformersCallback()
        trainer = Trainer(model, args, train_dataset=dataset, callbacks=[supervised])
        trainer.train(resume_from_checkpoint=resume_path())
        if supervised.stopped:
            leave(STOPPED)

    All ranks stop after the same step. The Trainer saves a checkpoint in its `output_dir`, whatever its save
    strategy is, and does not evaluate before: a stop leaves 70 s. `resume_from_checkpoint` then continues
    with the same samples and random numbers (unless `ignore_data_skip` is set).
    """

    def __init__(self) -> None:
        self._stop = StopAgreement()
        self._activity: Activity = "step"

    @property
    def stopped(self) -> bool:
        """True when the training was stopped before its end."""
        return self._stop.stopped

    def on_step_end(self, args: object, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Report the step; ask to save and to stop where all ranks agreed to."""
        # A training that has reached its end has not been stopped. The ranks know that together.
        if not control.should_training_stop and self._stop.should_stop():
            control.should_training_stop = control.should_save = True
            control.should_evaluate = False
        self._report(state, control)

    def on_epoch_end(self, args: object, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Report what follows the epoch; after a stop everything is saved already."""
        if self.stopped:
            control.should_save = control.should_evaluate = False
        self._report(state, control)

    def on_prediction_step(
        self, args: object, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Report progress of the evaluation."""
        beat(state.global_step, "eval")

    def on_evaluate(self, args: object, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Report that the evaluation has ended."""
        self._activity = "checkpoint" if control.should_save else "step"
        beat(state.global_step, self._activity)

    def on_save(self, args: object, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Report that the checkpoint is written."""
        self._activity = "step"
        beat(state.global_step)

    def on_log(
        self,
        args: object,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Report the numbers that the Trainer logs; those of rank 0 become the curves."""
        if logs and _SUMMARY not in logs:
            beat(state.global_step, self._activity, **numbers_of(logs))

    def _report(self, state: TrainerState, control: TrainerControl) -> None:
        """Report the step, with what the Trainer does next: it evaluates first, then saves."""
        if control.should_evaluate:
            self._activity = "eval"
        elif control.should_save:
            self._activity = "checkpoint"
        else:
            self._activity = "step"
        beat(state.global_step, self._activity)
