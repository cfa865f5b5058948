"""Which strategies a job may come to, where the GPUs are not known yet."""

import pytest

from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.job.workload import strategies_of, strategy_for


@pytest.mark.parametrize(
    ("parameters", "strategies"), [(250_000, ("ddp",)), (10**9, ("ddp", "fsdp2")), (10**11, ("fsdp2",))]
)
def test_only_strategies_of_some_gpu_are_estimated(parameters: int, strategies: tuple[str, ...]) -> None:
    assert strategies_of(TrainConfig(), 8, parameters, gpus=True) == strategies
    for memory_gb in (4, 8, 24, 80, 180):
        chosen, _ = strategy_for(TrainConfig(), world_size=8, parameters=parameters, memory=memory_gb * 10**9)
        assert chosen in strategies


@pytest.mark.parametrize(
    ("config", "world_size", "gpus", "strategies"),
    [
        (TrainConfig(), 1, True, ("single",)),
        (TrainConfig(), 8, False, ("ddp",)),
        (TrainConfig(strategy="fsdp2"), 8, True, ("fsdp2",)),
    ],
)
def test_what_the_job_or_its_ranks_decide_is_the_only_one(
    config: TrainConfig, world_size: int, gpus: bool, strategies: tuple[str, ...]
) -> None:
    assert strategies_of(config, world_size, 10**9, gpus=gpus) == strategies


@pytest.mark.parametrize(("ema", "needed_gib"), [(None, 16), (0.999, 20)])
def test_a_model_with_a_state_above_half_of_a_gpu_is_sharded(ema: float | None, needed_gib: int) -> None:
    config = TrainConfig(ema=ema)

    def chosen(memory: int) -> tuple[str, str]:
        return strategy_for(config, world_size=2, parameters=2**30, memory=memory)

    just_fits = 2 * needed_gib * 2**30
    assert chosen(just_fits) == (
        "ddp",
        f"weights, gradients and optimiser need {needed_gib}.0 of a GPU's {2 * needed_gib} GiB",
    )
    assert chosen(just_fits - 1)[0] == "fsdp2"
