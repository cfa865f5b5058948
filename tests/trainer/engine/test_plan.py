"""The plan of a start: which strategy and why, and sizes that always make the whole batch."""

from dataclasses import replace
from typing import Any

import pytest

from vastrun.trainer.engine.plan import PlanInputs, make_plan
from vastrun.trainer.errors import ConfigError
from vastrun.trainer.job.config import Fsdp2Config, TrainConfig

GIB = 2**30
CPU = PlanInputs(world_size=2, device="cpu", memory=None, bf16=True, parameters=10**6, windows=1000)
GPU = PlanInputs(world_size=2, device="cuda", memory=80 * GIB, bf16=True, parameters=10**9, windows=1000)


@pytest.mark.parametrize(
    ("facts", "config", "strategy", "reason"),
    [
        (replace(GPU, world_size=1), TrainConfig(), "single", "one rank"),
        (CPU, TrainConfig(), "ddp", "on CPUs every rank holds the whole model"),
        (GPU, TrainConfig(), "ddp", "weights, gradients and optimiser need 14.9 of a GPU's 80 GiB"),
        (replace(GPU, memory=24 * GIB), TrainConfig(), "fsdp2", "need 14.9 of a GPU's 24 GiB"),
        (replace(GPU, memory=32 * GIB), TrainConfig(ema=0.99), "fsdp2", "need 18.6 of a GPU's 32 GiB"),
        (replace(GPU, memory=24 * GIB), TrainConfig(strategy="ddp"), "ddp", "set in the job file"),
    ],
)
def test_the_strategy_is_chosen_by_what_fits(
    facts: PlanInputs, config: TrainConfig, strategy: str, reason: str
) -> None:
    plan = make_plan(config, facts)
    assert plan.strategy == strategy
    assert reason in plan.reason
    assert plan.reason in str(plan)


@pytest.mark.parametrize(
    ("ranks", "asked", "cap", "micro_batch"),
    [
        (1, None, None, 48),
        (2, None, None, 24),
        (2, 8, None, 8),
        (2, None, 12, 12),
        (2, None, 11, 8),
        (2, 6, 12, 6),
        (2, 12, 5, 4),
        (16, 8, None, 3),
        (2, None, 1, 1),
    ],
)
def test_a_cap_makes_micro_batches_smaller_and_never_the_batch(
    ranks: int, asked: int | None, cap: int | None, micro_batch: int
) -> None:
    facts = replace(CPU, world_size=ranks, micro_batch_cap=cap)
    plan = make_plan(TrainConfig(batch=48, micro_batch=asked), facts)
    assert plan.micro_batch == micro_batch
    assert plan.world_size * plan.micro_batch * plan.accumulation == 48


@pytest.mark.parametrize(
    ("facts", "options", "fault"),
    [
        (replace(CPU, world_size=5), {}, "train.batch: expected a multiple of the 5 ranks, got 48"),
        (replace(CPU, windows=47), {}, "train.batch: expected at most the 47 windows of the set, got 48"),
        (CPU, {"strategy": "single"}, "train.strategy: single is one rank, not 2"),
        (replace(GPU, bf16=False), {"precision": "bf16"}, "train.precision: this GPU cannot compute in bf16"),
        (replace(GPU, bf16=False), {"precision": "tf32"}, "train.precision: this GPU cannot compute in tf32"),
        (
            CPU,
            {"cuda_graphs": True, "compile": "blocks"},
            "train.cuda_graphs: only with single, not with ddp",
        ),
        (
            replace(CPU, world_size=1),
            {"cuda_graphs": True, "compile": "blocks"},
            "train.cuda_graphs: needs a GPU",
        ),
        (
            CPU,
            {"strategy": "fsdp2", "fsdp2": Fsdp2Config(cpu_offload=True)},
            "train.fsdp2.cpu_offload: needs a GPU to offload from",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    facts: PlanInputs, options: dict[str, Any], fault: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        make_plan(TrainConfig(**options), facts)
    assert str(caught.value) == fault
