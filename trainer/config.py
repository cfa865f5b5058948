"""The `train:` section: what the onboard trainer learns and how. No torch: the launcher validates with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, MinLen

Positive = Annotated[float, Gt(0)]
Count = Annotated[int, Ge(1)]
Seed = Annotated[int, Ge(0)]


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The data set: made by our own solver when its file is not there."""

    task: str = "advection"
    """`advection`, or `module:function` of the user's own code (see trainer/data/__init__.py)."""
    betas: Annotated[tuple[Positive, ...], MinLen(1)] = (0.4, 1.0)
    """Advection speeds; each is a file of its own."""
    train: Count = 256
    """Initial conditions to train on, per speed."""
    test: Count = 64
    points: Annotated[int, Ge(16)] = 64
    frames: Annotated[int, Ge(2)] = 21
    dt: Positive = 0.1
    seed: Seed = 2022


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The latent operator: patch encoder, transformer blocks with AdaLN, patch decoder."""

    dim: Annotated[int, Ge(8)] = 64
    depth: Count = 4
    heads: Count = 4
    patch: Count = 4
    mlp_ratio: Count = 2


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """AdamW with warm-up and cosine decay, both per step."""

    lr: Positive = 3e-3
    weight_decay: Annotated[float, Ge(0)] = 0.01
    betas: tuple[Annotated[float, Ge(0), Le(1)], Annotated[float, Ge(0), Le(1)]] = (0.9, 0.98)
    warmup: Annotated[float, Ge(0), Le(1)] = 0.05
    """Share of the steps."""
    clip: Positive = 1.0
    """Largest gradient norm."""


@dataclass(frozen=True, kw_only=True)
class WandbConfig:
    """Weights & Biases, on rank 0."""

    mode: Literal["auto", "online", "offline", "off"] = "auto"
    """auto: online when WANDB_API_KEY is set, else offline."""
    project: str = "vastrun"
    entity: str | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One training."""

    steps: Count = 1500
    batch: Count = 48
    """Windows a step over all ranks; must divide by the number of ranks."""
    unroll: Count = 3
    """Frames predicted in a row while training."""
    noise: Annotated[float, Ge(0)] = 0.01
    """Standard deviation of the noise added to input frames, in units of the data's own."""
    seed: Seed = 0
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    wandb: WandbConfig = field(default_factory=WandbConfig)
    strategy: Literal["ddp"] = "ddp"
    log_every: Count = 10
    checkpoint_every: Count = 500
    keep_checkpoints: Annotated[int, Ge(2)] = 2
    threads: Count = 1
    """CPU threads a rank may use."""


def faults_of(config: TrainConfig, world_size: int) -> list[tuple[str, str]]:
    """What is wrong between fields: (key, fault) pairs, keys relative to `train`."""
    faults = []
    if config.batch % world_size:
        faults.append(("batch", f"expected a multiple of the {world_size} ranks, got {config.batch}"))
    if config.data.points % config.model.patch:
        faults.append(
            (
                "model.patch",
                f"expected a divisor of data.points ({config.data.points}), got {config.model.patch}",
            )
        )
    if config.model.dim % config.model.heads:
        faults.append(
            ("model.heads", f"expected a divisor of model.dim ({config.model.dim}), got {config.model.heads}")
        )
    if config.unroll >= config.data.frames:
        faults.append(
            ("unroll", f"expected less than data.frames ({config.data.frames}), got {config.unroll}")
        )
    return faults
