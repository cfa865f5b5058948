"""Plan: the strategy and the sizes of one start, chosen from the job and from what is there. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from vastrun.contract.config import TrainConfig
from vastrun.contract.errors import ConfigError
from vastrun.contract.strategy import strategy_for


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a start finds on its ranks."""

    world_size: int
    device: str
    """`cuda` or `cpu`."""
    memory: int | None
    """Bytes of each rank's GPU; None on a CPU."""
    bf16: bool
    parameters: int
    windows: int
    """What the smallest training set holds."""
    has_torchft: bool = True
    compiles_deterministically: bool = True
    """torch.compile can choose its kernels without timing them."""
    micro_batch_cap: int | None = None
    """More windows at once did not fit before."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The batch of a turn is always world_size x micro_batch x accumulation windows."""

    strategy: str
    reason: str
    """Why this strategy."""
    world_size: int
    micro_batch: int
    """Windows that a rank computes at once."""
    accumulation: int
    """Micro-batches of a rank in each turn."""
    precision: str
    reserved_mib: int | None = None
    """What the passes take of a GPU, on the rank that needs most; None: nobody tried them."""

    @property
    def share(self) -> int:
        """Windows of a rank in each turn."""
        return self.micro_batch * self.accumulation

    def __str__(self) -> str:
        return (
            f"{self.strategy} ({self.reason}), {self.precision}, "
            f"batch {self.world_size * self.share} = {self.world_size} ranks "
            f"x {self.micro_batch} windows x {self.accumulation}"
        )


def make_plan(config: TrainConfig, facts: Facts) -> Plan:
    """Make the plan of this start. Raises ConfigError when what is there cannot do what the job asks for."""
    batch = config.global_batch
    if batch % facts.world_size:
        raise ConfigError(f"train.batch: expected a multiple of the {facts.world_size} ranks, got {batch}")
    share = batch // facts.world_size
    # The cap is what former starts learnt by running out of memory.
    micro_batch = fitting(share, min(config.micro_batch or share, facts.micro_batch_cap or share))
    strategy, reason = strategy_for(
        config, world_size=facts.world_size, parameters=facts.parameters, memory=facts.memory
    )
    for fault in _faults(config, facts, strategy):
        raise ConfigError(fault)
    return Plan(
        strategy=strategy,
        reason=reason,
        world_size=facts.world_size,
        micro_batch=micro_batch,
        accumulation=share // micro_batch,
        precision=config.precision,
    )


def fitting(share: int, most: int) -> int:
    """Return the largest number of windows, `most` at most, that divides a rank's share of the batch."""
    return max(size for size in range(1, min(share, most) + 1) if share % size == 0)


def _faults(config: TrainConfig, facts: Facts, strategy: str) -> list[str]:
    """Return what only shows where the training starts; all else is in `contract.config_checks`."""
    checks = [
        (
            config.global_batch > facts.windows,
            f"train.batch: expected at most the {facts.windows} windows of the set, got {config.batch}",
        ),
        (
            strategy == "single" and facts.world_size > 1,
            f"train.strategy: single is one rank, not {facts.world_size}",
        ),
        (
            config.precision in ("bf16", "tf32") and not facts.bf16,  # GPUs learned both at once
            f"train.precision: this GPU cannot compute in {config.precision}",
        ),
        (
            config.cuda_graphs and strategy != "single",
            f"train.cuda_graphs: only with single, not with {strategy}",
        ),
        (
            strategy == "fsdp2" and config.out_of_memory == "retry",
            "train.out_of_memory: retry is for single and ddp, not for fsdp2",
        ),
        (
            strategy == "diloco" and not facts.has_torchft,
            "train.strategy: diloco needs torchft, which is not here: setup: [pip install torchft==0.2.0]",
        ),
        (config.cuda_graphs and facts.device == "cpu", "train.cuda_graphs: needs a GPU"),
        (
            config.deterministic and config.compile != "off" and not facts.compiles_deterministically,
            "train.compile: with deterministic it needs torch 2.10 or later, which can choose kernels "
            "without timing them; set compile: off",
        ),
        (
            strategy == "fsdp2" and config.fsdp2.cpu_offload and facts.device == "cpu",
            "train.fsdp2.cpu_offload: needs a GPU to offload from",
        ),
    ]
    return [text for wrong, text in checks if wrong]
