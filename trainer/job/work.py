"""Work: the cost of a step of a training, compared with another. No torch: the launcher imports it."""

from collections.abc import Mapping
from dataclasses import replace

from vastrun.trainer.job.config import ObjectiveConfig, OptimConfig, TrainConfig
from vastrun.trainer.job.data_config import DataConfig
from vastrun.trainer.job.stage_config import StageConfig, StageName

SAME_WORK = (
    *("gate", "steps", "noise", "seed", "limits"),
    *("wandb", "mlflow", "tensorboard", "plots", "profile", "log_every"),
    *("checkpoint_every", "keep_checkpoints", "keep_best"),
)
"""Keys of `train:` whose values do not affect the time of a step; those of all others do."""

_DEFAULTS = TrainConfig()
_PASSES: Mapping[str, int] = {"operator": 3, "refine": 4, "distill": 7, "steady": 3}
"""Forward passes of a network for each frame that a stage trains on; a backward pass takes as long as two.

operator, steady: a forward and a backward pass. refine: the operator's prediction besides. distill: besides
that, two passes of its teacher and one of its average.
"""


def same_work(train: TrainConfig) -> TrainConfig:
    """Return the training with defaults for everything that does not affect the work of a step."""
    return replace(
        train,
        **{name: getattr(_DEFAULTS, name) for name in SAME_WORK},
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


def work_done(train: TrainConfig, step: float) -> float:
    """Return the work of the first `step` steps, in steps of mean work over all stages.

    Of a job with one stage that is the step itself.
    """
    spans = train.stage_spans
    if len(spans) == 1:
        return step
    passes = [_PASSES[span.name] * train.of_stage(span.name).unroll for span in spans]
    total = sum(each * span.steps for each, span in zip(passes, spans, strict=True))
    done = sum(
        each * min(max(step - span.first_step, 0), span.steps)
        for each, span in zip(passes, spans, strict=True)
    )
    return done / total * train.total_steps
