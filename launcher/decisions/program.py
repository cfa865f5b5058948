"""Program: how the program of a job is started and watched on its machines. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vastrun.contract.program import ProgramSpec
from vastrun.launcher.core.job import JobSpec
from vastrun.trainer.job import program as train_program
from vastrun.trainer.job.config import TrainConfig


def program_of(spec: JobSpec) -> ProgramSpec:
    """Return what the machine's part reads of the job's program."""
    if spec.hold is not None:
        # The trainings of its slots need the packages that the trainer pins.
        return ProgramSpec(kind="hold", package=train_program.PACKAGE)
    if spec.train is None:
        return ProgramSpec(kind="command", argv=spec.command or ())
    train = _with_tags(spec.train, spec.tags)
    return train_program.program_of(train, gpus=spec.resources.gpus, variables=spec.env)


def _with_tags(train: TrainConfig, tags: Sequence[str]) -> TrainConfig:
    """The job's tags are those of the W&B run and the MLflow run, too."""
    for name in ("wandb", "mlflow"):
        tracker = getattr(train, name)
        if tracker.mode != "off":
            merged = tuple(dict.fromkeys((*tags, *tracker.tags)))
            train = replace(train, **{name: replace(tracker, tags=merged)})
    return train
