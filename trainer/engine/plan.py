"""Plan: strategy and batch sizes of one start, chosen from the job and the hardware. No torch."""

from dataclasses import dataclass

from vastrun.trainer.errors import ConfigError
from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.job.workload import strategy_for


@dataclass(frozen=True, kw_only=True)
class PlanInputs:
    """Hardware, software and data of a start, as far as the plan depends on them."""

    world_size: int
    device: str
    """`cuda` or `cpu`."""
    memory: int | None
    """Bytes of GPU memory per rank; None on a CPU."""
    bf16: bool
    parameters: int
    windows: int
    """Windows in the smallest training set."""
    micro_batch_cap: int | None = None
    """Largest micro-batch to try, after an earlier start ran out of memory; None: no limit."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Strategy and sizes. The batch of a turn is always world_size x micro_batch x accumulation windows."""

    strategy: str
    reason: str
    """Reason for the strategy, for the log."""
    world_size: int
    micro_batch: int
    """Windows per forward pass of a rank."""
    accumulation: int
    """Micro-batches per turn and rank."""
    precision: str

    @property
    def share(self) -> int:
        """Windows per turn and rank."""
        return self.micro_batch * self.accumulation

    def __str__(self) -> str:
        return (
            f"{self.strategy} ({self.reason}), {self.precision}, "
            f"batch {self.world_size * self.share} = {self.world_size} ranks "
            f"x {self.micro_batch} windows x {self.accumulation}"
        )


def make_plan(config: TrainConfig, inputs: PlanInputs) -> Plan:
    """Make the plan of this start. Raises ConfigError when the hardware cannot do what the job asks for."""
    batch = config.batch
    if batch % inputs.world_size:
        raise ConfigError(f"train.batch: expected a multiple of the {inputs.world_size} ranks, got {batch}")
    share = batch // inputs.world_size
    # The cap comes from earlier starts that ran out of memory.
    micro_batch = largest_divisor(share, min(config.micro_batch or share, inputs.micro_batch_cap or share))
    strategy, reason = strategy_for(
        config, world_size=inputs.world_size, parameters=inputs.parameters, memory=inputs.memory
    )
    for fault in _errors(config, inputs, strategy):
        raise ConfigError(fault)
    return Plan(
        strategy=strategy,
        reason=reason,
        world_size=inputs.world_size,
        micro_batch=micro_batch,
        accumulation=share // micro_batch,
        precision=config.precision,
    )


def largest_divisor(share: int, limit: int) -> int:
    """Return the largest number of windows, at most `limit`, that divides a rank's share of the batch."""
    return max(size for size in range(1, min(share, limit) + 1) if share % size == 0)


def _errors(config: TrainConfig, inputs: PlanInputs, strategy: str) -> list[str]:
    """List the errors that only show at the start; all others are in `contract.config_checks`."""
    checks = [
        (
            config.batch > inputs.windows,
            f"train.batch: expected at most the {inputs.windows} windows of the set, got {config.batch}",
        ),
        (
            strategy == "single" and inputs.world_size > 1,
            f"train.strategy: single is one rank, not {inputs.world_size}",
        ),
        (
            config.precision in ("bf16", "tf32") and not inputs.bf16,  # GPUs support both or neither
            f"train.precision: this GPU cannot compute in {config.precision}",
        ),
        (
            config.cuda_graphs and strategy != "single",
            f"train.cuda_graphs: only with single, not with {strategy}",
        ),
        (config.cuda_graphs and inputs.device == "cpu", "train.cuda_graphs: needs a GPU"),
        (
            strategy == "fsdp2" and config.fsdp2.cpu_offload and inputs.device == "cpu",
            "train.fsdp2.cpu_offload: needs a GPU to offload from",
        ),
    ]
    return [text for wrong, text in checks if wrong]
