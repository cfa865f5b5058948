"""Strategy: how a model comes to be spread over the ranks. No torch: the launcher asks, too."""

from __future__ import annotations

from vastrun.contract.config import TrainConfig

# Weight, gradient and AdamW's two moments in fp32; an average is one more.
_BYTES_PER_PARAMETER = 16
_BYTES_OF_AVERAGE = 4

# Activations need the rest. Whoever knows better names the strategy.
_SHARE_OF_STATE = 0.5


# Bytes of the smallest and the largest GPU that a rank may come to.
_SMALLEST, _LARGEST = 4 * 10**9, 10**12


def strategies_of(config: TrainConfig, world_size: int, parameters: int, *, gpus: bool) -> tuple[str, ...]:
    """Return what may be chosen for this job, whatever memory the ranks' GPUs have."""
    if config.strategy == "auto" and world_size > 1 and config.out_of_memory == "retry":
        # A step that is done again is done by the bare model, which fsdp2 does not leave.
        return ("ddp",)
    memories = (_LARGEST, _SMALLEST) if gpus else (None,)
    chosen = [
        strategy_for(config, world_size=world_size, parameters=parameters, memory=memory)[0]
        for memory in memories
    ]
    return tuple(dict.fromkeys(chosen))


def strategy_for(
    config: TrainConfig, *, world_size: int, parameters: int, memory: int | None
) -> tuple[str, str]:
    """Choose the strategy, and say why. `memory`: bytes of each rank's GPU; None on CPUs."""
    if config.strategy != "auto":
        return config.strategy, "as the job says"
    if world_size == 1:
        return "single", "one rank"
    if memory is None:
        return "ddp", "on CPUs every rank holds the whole model"
    per_parameter = _BYTES_PER_PARAMETER + (_BYTES_OF_AVERAGE if config.ema else 0)
    needed, there = parameters * per_parameter / 2**30, memory / 2**30
    found = f"weights, gradients and optimiser need {needed:.1f} GiB of a GPU's {there:.0f}"
    return ("ddp" if needed <= _SHARE_OF_STATE * there else "fsdp2"), found
