"""What is estimated of a step is what a real one takes: operations to the last, memory to a tenth."""

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.estimate import compared as compare
from benchmarks.estimate import jobs, trained_within
from vastrun.contract.records import read_as, read_json
from vastrun.contract.workload import PeakBytes, Workload, Workloads
from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.job.data_config import DataConfig
from vastrun.trainer.job.workload import WorkloadQuery
from vastrun.trainer.workload.estimator import combine_stages

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_a_deterministic_step_of_several_ranks_is_estimated_as_any_other() -> None:
    usual, deterministic = (
        estimate_workloads(TrainConfig(batch=4, strategy="ddp", deterministic=on), 2).of("ddp")[0]
        for on in (False, True)
    )
    assert deterministic.flops == usual.flops > 0
    assert abs(deterministic.peak.total / usual.peak.total - 1) < 0.1


@pytest.mark.parametrize("name", ["single latent bf16 checkpointing", "single latent bf16 selective"])
@pytest.mark.slow
def test_operations_are_equal_and_memory_is_within_a_tenth_of_a_real_step(name: str) -> None:
    found = compare(name, dict(jobs())[name])
    assert found.estimated_flops == found.flops > 0
    assert abs(found.off) < 0.1


@pytest.mark.parametrize(
    "name",
    [
        "ddp fno bf16",
        "ddp spectral fp32",
        "fsdp2 latent bf16 checkpointing",
        "fsdp2 fno fp32 checkpointing",
        "fsdp2 spectral bf16 checkpointing",
    ],
)
@pytest.mark.slow
def test_no_more_is_estimated_of_a_step_of_several_ranks_than_it_takes_and_a_tenth(name: str) -> None:
    # By chance a real one takes up to a sixth more: how near it is, the benchmark says, of several trainings.
    found = compare(name, dict(jobs())[name], trainings=1)
    assert found.estimated_flops == found.flops > 0
    assert -0.25 < found.off < 0.1


@pytest.mark.slow
def test_a_step_that_has_too_little_memory_was_estimated_and_so_was_the_one_that_fits() -> None:
    config = dict(jobs())["single latent fp32"]
    small, large = (
        estimate_workloads(replace(config, micro_batch=size), 1, gpus=False).of("single")[0].peak
        for size in (4, 16)
    )
    limit = (small.total + large.total) // 2
    assert not trained_within(replace(config, micro_batch=16), limit)
    assert trained_within(replace(config, micro_batch=4), limit)


@pytest.mark.slow
def test_ranks_with_ddp_do_the_work_of_a_rank_alone_on_several_tasks_too() -> None:
    tasks = (DataConfig(task="advection"), DataConfig(task="burgers"))
    alone = estimate_workloads(TrainConfig(data=tasks, batch=8, strategy="single"), 1).of("single")
    shared = estimate_workloads(TrainConfig(data=tasks, batch=16, strategy="ddp"), 2).of("ddp")
    assert [one.micro_batch for one in shared] == [one.micro_batch for one in alone] == [8, 1]
    for ours, theirs in zip(shared, alone, strict=True):
        assert ours.flops == theirs.flops
        assert ours.peak.total == pytest.approx(theirs.peak.total, rel=0.05)


@pytest.mark.slow
def test_more_ranks_than_this_computer_has_hold_less_each() -> None:
    found = estimate_workloads(TrainConfig(batch=64), 64)
    ddp = found.of("ddp")[0]
    sharded = estimate_workloads(TrainConfig(batch=64, strategy="fsdp2"), 64).of("fsdp2")[0]
    assert sharded.peak.optimiser < ddp.peak.optimiser / 20
    assert ddp.micro_batch == 1
    assert found.parameters * 4 < ddp.peak.parameters + ddp.peak.gradients


@pytest.mark.slow
def test_a_task_of_the_users_own_has_no_size_before_it_is_read() -> None:
    asked = ask(TrainConfig(data=(DataConfig(task="mine:make"),)), 1)
    assert asked.returncode == 1
    assert asked.stderr.startswith("workload: data.task: expected one of")


def estimate_workloads(config: TrainConfig, world_size: int, *, gpus: bool = True) -> Workloads:
    found: Workloads = read_json(Workloads, ask(config, world_size, gpus=gpus).stdout)
    return found


def ask(config: TrainConfig, world_size: int, *, gpus: bool = True) -> Any:
    return asked(WorkloadQuery(train=config, world_size=world_size, gpus=gpus))


def asked(query: WorkloadQuery) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "vastrun.trainer.workload"],
        input=json.dumps(asdict(query)),
        capture_output=True,
        text=True,
        cwd=ROOT,
    )


WIDE: dict[str, Any] = {
    "unroll": 2,
    "strategy": "single",
    "data": {"betas": [1.0], "train": 64, "test": 2, "points": 1024, "frames": 21},
    "model": {"name": "latent", "dim": 512, "depth": 6, "heads": 8, "patch": 4},
    "wandb": {"mode": "off"},
}
FNO = {"name": "fno", "dim": 128, "depth": 4}
ON_AN_H100: tuple[tuple[dict[str, Any], int], ...] = (
    ({"batch": 96}, 11_625_005_568),
    ({"batch": 96, "precision": "bf16"}, 7_631_311_360),
    ({"batch": 256, "precision": "bf16", "activation_checkpointing": "selective"}, 9_134_277_120),
    ({"batch": 512, "precision": "bf16", "activation_checkpointing": "full"}, 6_026_826_240),
    ({"batch": 192, "model": FNO}, 3_731_182_592),
)
"""Peaks of the allocator in bytes, as the check `estimated` measured them with torch 2.11."""


@pytest.mark.slow
@pytest.mark.parametrize(("changes", "peak"), ON_AN_H100, ids=[str(row[0]) for row in ON_AN_H100])
def test_an_estimate_for_a_gpu_is_within_a_tenth_of_one_measured(changes: dict[str, Any], peak: int) -> None:
    config = read_as(TrainConfig, {**WIDE, **changes})
    query = WorkloadQuery(train=config, world_size=1, gpus=True)
    found: Workloads = read_json(Workloads, asked(query).stdout)
    assert found.workloads[0].peak.total == pytest.approx(peak, rel=0.1)


def workload(*, flops: float, operations: int, parameters: int) -> Workload:
    peak = PeakBytes(parameters=parameters, gradients=1, optimiser=2, activations=3, other=4)
    return Workload(
        strategy="ddp", micro_batch=8, flops=flops, traffic_bytes=10 * flops, operations=operations, peak=peak
    )


def test_the_steps_of_a_stage_say_how_much_it_counts() -> None:
    operator = workload(flops=100.0, operations=10, parameters=50)
    distill = workload(flops=400.0, operations=50, parameters=150)
    both = combine_stages([operator, distill], [300, 100])
    assert (both.flops, both.traffic_bytes, both.operations) == (175.0, 1750.0, 20)
    assert both.peak == distill.peak
