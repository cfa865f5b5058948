"""Workload: estimate of a step's memory and operations on one rank, and the strategy for it. No torch: the
launcher imports it.

`python -m vastrun.trainer.workload` reads a `WorkloadQuery` from its standard input and writes `Workloads`.
"""

from dataclasses import dataclass

from vastrun.trainer.job.config import TrainConfig

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
