"""What follows of a task's name, and which faults between the fields of `train:` are found. No torch."""

from dataclasses import replace
from typing import Any

import pytest

from vastrun.trainer.job import config
from vastrun.trainer.job.config_checks import faults_of
from vastrun.trainer.job.data_config import DataConfig

# Axes of the grid, values at each point, whether the problem has no time.


def test_a_task_of_the_users_code_has_an_axis_and_no_file() -> None:
    own = DataConfig(task="mytask:make")
    assert (own.axes, own.steady, own.file_gb) == (1, False, 0.0)


def test_parameters_are_all_combinations_of_what_is_trained_and_of_what_is_only_tested_on() -> None:
    data = DataConfig(
        task="compressible_2d",
        machs=(0.1, 1.0),
        etas=(0.01,),
        ranges={"etas": (0.01, 1.0)},
        range_values=3,
        unseen={"machs": (0.5,)},
    )
    assert data.parameters_of("compressible_2d") == (
        (0.1, 0.01),
        (0.1, 0.1),
        (0.1, 1.0),
        (1.0, 0.01),
        (1.0, 0.1),
        (1.0, 1.0),
    )
    assert data.unseen_parameters_of("compressible_2d") == ((0.5, 0.01), (0.5, 0.1), (0.5, 1.0))
    assert data.has_ranges("compressible_2d")
    assert not data.has_ranges("burgers")
    assert data.unseen_parameters_of("burgers") == ()


ADVECTION = DataConfig()
BURGERS = DataConfig(task="burgers")
DARCY = DataConfig(task="darcy")
EVALUATED: dict[str, Any] = {"evaluate_every": 500, "batch": 1}
OFFLOADED: dict[str, Any] = {"strategy": "fsdp2", "fsdp2": config.Fsdp2Config(cpu_offload=True)}


def keys(world_size: int = 1, **changes: Any) -> list[str]:
    """The keys of all faults."""
    return [key for key, _ in faults_of(config.TrainConfig(**changes), world_size)]


def test_the_defaults_have_no_fault() -> None:
    assert keys() == []


@pytest.mark.parametrize("data", [replace(ADVECTION, patch=5), replace(ADVECTION, points=63)])
def test_the_patch_divides_the_points_and_the_key_that_gave_it_is_named(data: DataConfig) -> None:
    assert keys(data=(data,), model=config.ModelConfig(name="latent")) == [
        "data.patch" if data.patch else "model.patch"
    ]


@pytest.mark.parametrize(
    ("changes", "ranks", "faults"),
    [
        ({"batch": 48}, 5, ["batch"]),
        ({"batch": 48}, 48, []),
        ({"batch": 48, "micro_batch": 48}, 1, []),
        ({"batch": 48, "micro_batch": 24}, 2, []),
        ({"batch": 48, "micro_batch": 16}, 2, ["micro_batch"]),
        ({"batch": 48, "micro_batch": 7}, 5, ["batch"]),
        ({"batch": 72, "data": (DataConfig(train=2, frames=21),)}, 1, []),  # 2 speeds x 2 x (21 - 3)
        ({"batch": 73, "data": (DataConfig(train=2, frames=21),)}, 1, ["batch"]),
        ({"batch": 4, "remainder": "drop", "data": (DataConfig(train=2),)}, 1, []),
        ({"batch": 5, "remainder": "drop", "data": (DataConfig(train=2),)}, 1, ["remainder"]),
        ({"unroll": 20}, 1, []),
        ({"unroll": 21}, 1, ["unroll"]),
        ({"data": (ADVECTION, ADVECTION)}, 1, ["data[1].task"]),
        ({"data": (ADVECTION, BURGERS, ADVECTION)}, 1, ["data[2].task"]),
        ({"model": config.ModelConfig(name="latent", dim=64, heads=3)}, 1, ["model.heads"]),
        ({"evaluate_every": 250, "data": (DataConfig(validation=8),)}, 1, []),
        ({"evaluate_every": 1000, "data": (DataConfig(validation=8),)}, 1, []),
        ({"evaluate_every": 300, "data": (DataConfig(validation=8),)}, 1, ["evaluate_every"]),
        ({"evaluate_every": 500}, 1, ["data.validation"]),
        ({"data": (DataConfig(validation=1),)}, 1, ["data.validation"]),
        ({"evaluate_every": 500, "batch": 36, "data": (DataConfig(train=9, validation=8),)}, 1, []),
        ({**EVALUATED, "data": (DataConfig(train=9, validation=9),)}, 1, ["batch", "data.validation"]),
        ({"objective": config.ObjectiveConfig(conservation=0.1)}, 1, []),
        ({"freeze": "codec"}, 1, []),
        ({"strategy": "single"}, 1, []),
        ({"strategy": "single"}, 2, ["strategy"]),
        ({"cuda_graphs": True, "compile": "blocks"}, 1, []),
        ({"cuda_graphs": True}, 1, ["cuda_graphs"]),
        ({"cuda_graphs": True, "compile": "blocks"}, 2, ["cuda_graphs"]),
        ({"cuda_graphs": True, "compile": "blocks", "strategy": "ddp"}, 1, ["cuda_graphs"]),
        ({"cuda_graphs": True, "compile": "blocks", "strategy": "single"}, 1, []),
        ({**OFFLOADED, "precision": "bf16"}, 2, []),
        ({**OFFLOADED, "precision": "fp16"}, 2, ["precision"]),
        ({"profile": config.ProfileConfig(step=1495, steps=5)}, 1, []),
        ({"profile": config.ProfileConfig(step=1496, steps=5)}, 1, ["profile.step"]),
        ({"profile": config.ProfileConfig(step=None)}, 1, []),
    ],
)
def test_a_fault_is_found_from_its_limit_on(changes: dict[str, Any], ranks: int, faults: list[str]) -> None:
    assert keys(ranks, **changes) == faults


@pytest.mark.parametrize(
    ("changes", "faults"),
    [
        ({}, []),
        ({"out_of_memory": "fail"}, []),
        ({"compile": "whole"}, []),
        ({"compile": "max-autotune"}, ["compile"]),
        ({"compile": "blocks", "cuda_graphs": True}, ["cuda_graphs"]),
    ],
)
def test_a_deterministic_training_has_nothing_that_a_resumed_one_would_do_otherwise(
    changes: dict[str, Any], faults: list[str]
) -> None:
    assert keys(**{"deterministic": True, **changes}) == faults
    assert "deterministic" not in " ".join(
        text for _, text in faults_of(replace(config.TrainConfig(), **changes), 1)
    )


@pytest.mark.parametrize(
    ("changes", "faults"),
    [
        ({"stage": "refine"}, []),
        ({"stage": "distill", "sampler": config.SamplerConfig(steps=2)}, []),
        ({"stage": "distill", "sampler": config.SamplerConfig(steps=3)}, ["sampler.steps"]),
        ({"stage": "refine", "sampler": config.SamplerConfig(steps=3)}, []),
        ({"stage": "refine", "sampler": config.SamplerConfig(draws=2)}, ["sampler.draws"]),
        ({"stage": "refine", "sampler": config.SamplerConfig(draws=2, temperature=0.0)}, ["sampler.draws"]),
        ({"stage": "refine", "sampler": config.SamplerConfig(draws=2, temperature=0.5)}, []),
        ({"stage": "steady"}, ["stage"]),
        ({"stage": "steady", "unroll": 1, "data": (DARCY,), "sampler": config.SamplerConfig(draws=2)}, []),
    ],
)
def test_a_stage_has_a_sampler_that_fits_it(changes: dict[str, Any], faults: list[str]) -> None:
    found = keys(**changes)
    assert [key for key in found if key.startswith(("stage", "sampler"))] == faults


@pytest.mark.parametrize(
    ("modes", "data", "faults"),
    [(32, (ADVECTION,), []), (33, (ADVECTION,), ["model.modes"]), (12, (ADVECTION, BURGERS), ["model.name"])],
)
def test_an_fno_keeps_at_most_half_the_points_of_its_one_task(
    modes: int, data: tuple[DataConfig, ...], faults: list[str]
) -> None:
    found = keys(data=data, model=config.ModelConfig(name="fno", modes=modes))
    assert [key for key in found if key in ("model.name", "model.modes")] == faults


def test_what_has_no_codec_is_not_frozen_and_what_has_no_time_keeps_nothing() -> None:
    assert "freeze" in keys(freeze="codec", model=config.ModelConfig(name="fno"))
    steady: dict[str, Any] = {"objective": config.ObjectiveConfig(conservation=0.1), "unroll": 1}
    assert "objective.conservation" in keys(**steady, data=(DARCY,))
    assert "objective.conservation" not in keys(**steady, data=(DARCY, DataConfig(task="shallow_water")))


def test_what_slows_a_training_down_is_off_unless_the_job_asks_for_it() -> None:
    assert config.TrainConfig().profile is None
    assert not (config.ProfileConfig().shapes or config.ProfileConfig().memory)
