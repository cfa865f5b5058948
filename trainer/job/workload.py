"""Workload: memory and operations of a step on one rank, its strategy, and its cost beside that of another.

No torch: the launcher imports it.

`python -m vastrun.trainer.workload` reads a `WorkloadQuery` from its standard input and writes `Workloads`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from vastrun.trainer.job.config import ObjectiveConfig, OptimConfig, TrainConfig
from vastrun.trainer.job.data_config import DataConfig
from vastrun.trainer.job.stage_config import StageConfig

# Weight, gradient and AdamW's two moments in fp32; an average is one more.
_BYTES_PER_PARAMETER = 16
_BYTES_OF_AVERAGE = 4

# Activations need the rest. A user who knows better sets the strategy.
_SHARE_OF_STATE = 0.5


# Bytes of the smallest and the largest GPU that a rank may get.
_MIN_GPU_BYTES, _MAX_GPU_BYTES = 4 * 10**9, 10**12


@dataclass(frozen=True, kw_only=True)
class WorkloadQuery:
    """The input of the estimate."""

    train: TrainConfig
    world_size: int
    gpus: bool
    """True when the ranks have GPUs."""
    code: str | None = None
    """Folder of the user's code on this computer, for a model in it; None: the model is built in."""


def strategies_of(config: TrainConfig, world_size: int, parameters: int, *, gpus: bool) -> tuple[str, ...]:
    """Return the possible strategies of this job, over all GPU memory sizes."""
    memories = (_MAX_GPU_BYTES, _MIN_GPU_BYTES) if gpus else (None,)
    chosen = [
        strategy_for(config, world_size=world_size, parameters=parameters, memory=memory)[0]
        for memory in memories
    ]
    return tuple(dict.fromkeys(chosen))


def strategy_for(
    config: TrainConfig, *, world_size: int, parameters: int, memory: int | None
) -> tuple[str, str]:
    """Return the strategy and the reason for it. `memory`: bytes of each rank's GPU; None on CPUs."""
    if config.strategy != "auto":
        return config.strategy, "set in the job file"
    if world_size == 1:
        return "single", "one rank"
    if memory is None:
        return "ddp", "on CPUs every rank holds the whole model"
    per_parameter = _BYTES_PER_PARAMETER + (_BYTES_OF_AVERAGE if config.ema else 0)
    needed, available = parameters * per_parameter / 2**30, memory / 2**30
    reason = f"weights, gradients and optimiser need {needed:.1f} of a GPU's {available:.0f} GiB"
    return ("ddp" if needed <= _SHARE_OF_STATE * available else "fsdp2"), reason


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
        stage_options={
            name: StageConfig(steps=own.steps, unroll=own.unroll)
            for name, own in sorted(train.stage_options.items())
        },
        ema=None if train.ema is None else _SOME_EMA,
    )


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
