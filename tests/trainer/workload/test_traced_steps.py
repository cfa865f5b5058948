"""Operations are counted, and figures of a deep model follow from those of two and of three of its blocks."""

import multiprocessing
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from vastrun.contract.records import read_as
from vastrun.contract.workload import Workload
from vastrun.trainer.job.config import ModelConfig, OptimConfig, TrainConfig
from vastrun.trainer.workload import traced_steps


@pytest.mark.torch
def test_the_device_of_a_fake_tensor_is_neither_an_operation_nor_traffic() -> None:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from vastrun.trainer.workload.tensors import TensorCounter

    with FakeTensorMode(allow_non_fake_inputs=True), TensorCounter() as tensors:
        x = torch.empty(8, 4)
        made = tensors.operations, tensors.traffic_bytes
        assert x.device == torch.device("cpu")
        assert (tensors.operations, tensors.traffic_bytes) == made == (1, 8 * 4 * 4)
        x + x
        assert (tensors.operations, tensors.traffic_bytes) == (2, 3 * 8 * 4 * 4)


DEPTH = 7
BASE: dict[str, Any] = {
    "batch": 16,
    "model": {"dim": 64, "depth": DEPTH, "heads": 4, "patch": 4},
    "data": {"betas": [1.0], "train": 16, "test": 4, "points": 64, "frames": 9},
}
FNO = {"name": "fno", "dim": 24, "depth": DEPTH}
VARIANTS: Mapping[str, dict[str, Any]] = {
    "latent": {},
    "selective": {"activation_checkpointing": "selective", "precision": "bf16", "ema": 0.9},
    "full": {"activation_checkpointing": "full", "unroll": 1},
    "large weights": {"model": {"dim": 512, "depth": DEPTH, "heads": 4, "patch": 16}, "unroll": 1},
    "fno": {"model": FNO, "activation_checkpointing": "full", "precision": "bf16"},
    "muon": {"optim": {"name": "muon"}},
    "refine": {"stage": "refine"},
}


def test_blocks_that_are_not_alike_are_traced_one_by_one() -> None:
    deep = TrainConfig(model=ModelConfig(depth=12))
    assert traced_steps.traced_depths(deep, "fsdp2", 2) == (2, 3)
    assert traced_steps.traced_depths(replace(deep, optim=OptimConfig(name="muon")), "fsdp2", 2) == (12,)
    assert traced_steps.traced_depths(replace(deep, optim=OptimConfig(name="muon")), "ddp", 2) == (2, 3)
    own = replace(deep, model=ModelConfig(name="mymodel:Net", depth=12))
    assert traced_steps.traced_depths(own, "single", 1) == (12,)


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["single", "ddp", "fsdp2"])
@pytest.mark.parametrize("name", VARIANTS)
def test_a_deep_model_has_the_figures_of_a_trace_of_all_its_blocks(name: str, strategy: str) -> None:
    config = read_as(TrainConfig, {**BASE, **VARIANTS[name], "strategy": strategy})
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pairs = pool.apply(both, (config, 1 if strategy == "single" else 4))
    for extrapolated, traced in pairs:
        assert extrapolated == traced


def both(config: TrainConfig, world_size: int) -> list[tuple[Workload, Workload]]:
    """The figures of the largest micro-batch and of one window: extrapolated, and of all blocks."""
    from vastrun.trainer.workload import estimator
    from vastrun.trainer.workload.fakes import make_fake_ranks

    ranks, found = make_fake_ranks(world_size), []
    for size in (config.batch // world_size, 1):
        deep = estimator.estimate_workload(ranks, config, config.strategy, size, gpus=True)
        whole = estimator.trace_step(ranks, config, config.strategy, size, gpus=True)
        found.append((deep, estimator.workload_of(whole, config.strategy, size, gpus=True)))
    return found
