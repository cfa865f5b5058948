"""Job shape: the part of a job that decides the work of a step. Speeds carry over between jobs of one
shape."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace

from vastrun.launcher.core.job import JobSpec
from vastrun.trainer.job.config import ObjectiveConfig, OptimConfig, TrainConfig
from vastrun.trainer.job.data_config import DataConfig
from vastrun.trainer.job.gates import StageName
from vastrun.trainer.job.stage_config import StageConfig

JobShape = str
"""Digest that is equal for two jobs whose steps are the same work."""

SAME_WORK = (
    *("gate", "steps", "noise", "seed", "limits"),
    *("wandb", "mlflow", "tensorboard", "plots", "profile", "log_every"),
    *("checkpoint_every", "keep_checkpoints", "keep_best"),
)
"""Keys of `train:` whose values do not affect the time of a step; those of all others do."""

_DEFAULTS = TrainConfig()
_IDLE = {name: getattr(_DEFAULTS, name) for name in SAME_WORK}
# Of `ema` only whether there is one counts.
_PLAIN = tuple(
    field.name
    for field in fields(TrainConfig)
    if field.name not in (*SAME_WORK, "ema")
    and isinstance(getattr(_DEFAULTS, field.name), str | int | float | None)
)
"""Keys with a single value that counts as it is."""


def shape_of(spec: JobSpec) -> JobShape:
    """Return the shape of a job, without the kind of machine and the number of its GPUs."""
    work = (
        None if spec.train is None else _work(spec.train),
        spec.command,
        tuple(sorted(spec.env.items())),
        # What a command does, or a task of the user's own, lies in this folder.
        None if spec.code is None else spec.code.path,
        spec.nodes,
        spec.resources.gpus > 0,
        None if spec.ranks_per_node == max(1, spec.resources.gpus) else spec.ranks_per_node,
    )
    return hashlib.sha256(repr(work).encode("utf-8", "replace")).hexdigest()[:16]


def shape_prefilter(spec: JobSpec) -> Callable[[str], bool]:
    """Return a fast test that excludes most stored jobs of another shape; reading each of them whole is
    slow.

    The test is False only for another shape. Keys that an older text lacks are ignored.
    """
    command = None if spec.command is None else list(spec.command)
    train = {} if spec.train is None else asdict(spec.train)
    values = {name: train[name] for name in _PLAIN if name in train}
    model = train.get("model", {})

    def may_match(spec_json: str) -> bool:
        job = json.loads(spec_json)
        other = job.get("train")
        if (other is None) is not (spec.train is None) or job.get("command") != command:
            return False
        return other is None or (_agree(values, other) and _agree(model, other.get("model", {})))

    return may_match


def _agree(requested: Mapping[str, object], found: Mapping[str, object]) -> bool:
    return all(found.get(name, value) == value for name, value in requested.items())


def steps_of(spec: JobSpec) -> int | None:
    """Return the last step of a job; None if it has none."""
    if spec.train is not None:
        return spec.train.total_steps
    return None if spec.success is None else spec.success.steps


def _work(train: TrainConfig) -> TrainConfig:
    """Return the training with defaults for everything that does not affect the work of a step."""
    return replace(
        train,
        **_IDLE,
        data=tuple(replace(data, seed=_DATA.seed, test=_DATA.test) for data in train.data),
        # Of a term of the loss only whether it is computed.
        objective=ObjectiveConfig(
            spectral=float(train.objective.spectral > 0), conservation=float(train.objective.conservation > 0)
        ),
        optim=OptimConfig(name=train.optim.name),
        # Stages take different times for a step: a run's speed is their mean, by their steps.
        stage_options=_stage_work(train),
        ema=None if train.ema is None else _SOME_EMA,
    )


def _stage_work(train: TrainConfig) -> Mapping[StageName, StageConfig]:
    """Return the options of stages that affect the mean work of a step."""
    return {
        name: StageConfig(steps=own.steps, unroll=own.unroll)
        for name, own in sorted(train.stage_options.items())
    }


_DATA = DataConfig()
_SOME_EMA = 0.5
