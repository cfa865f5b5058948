"""Whether a GPU has room for a job, and how fast it should be, by what was estimated of its steps."""

from dataclasses import fields, replace
from typing import Any

import pytest

from tests.jobs import command_job, train_job, workloads
from vastrun.contract.gpus import PEAKS
from vastrun.contract.workload import PeakBytes
from vastrun.launcher.config import dump_job, program_of
from vastrun.launcher.config.program_kinds import context_of
from vastrun.launcher.core import MeasuredRun
from vastrun.launcher.core.job import JobSpec, Resources
from vastrun.launcher.decisions import workload
from vastrun.launcher.decisions.policy import GPU_FRAGMENTS
from vastrun.trainer.job.config import TrainConfig

JOB = replace(train_job(resources=Resources(gpus=1)), train=TrainConfig(precision="bf16", steps=100))


def job(**train: Any) -> JobSpec:
    return replace(train_job(resources=Resources(gpus=1)), train=TrainConfig(**train))


def test_a_gpu_is_too_small_when_not_even_one_window_at_once_fits() -> None:
    found = workloads(small_gb=20.0, large_gb=60.0)
    assert workload.min_gb(found, job(), 80.0) == pytest.approx(20.0 * 1.1 + 0.8)
    assert workload.is_too_small(found, job(), 16.0)
    assert not workload.is_too_small(found, job(), 24.0)


@pytest.mark.parametrize(
    ("gpus", "gpu_gb", "strategy"), [(2, 31.9, "fsdp2"), (2, 32.0, "ddp"), (0, 31.9, "ddp")]
)
def test_the_strategy_is_chosen_by_the_memory_of_the_gpu(gpus: int, gpu_gb: float, strategy: str) -> None:
    # 16 bytes of weights, gradients and optimiser for each parameter, in half of the memory.
    both = workloads(strategy="ddp").workloads + workloads(strategy="fsdp2").workloads
    found = replace(workloads(), parameters=10**9, workloads=both)
    spec = train_job(resources=Resources(gpus=gpus), ranks=2)
    assert {each.strategy for each in workload.chosen_workloads(found, spec, gpu_gb)} == {strategy}


@pytest.mark.parametrize("use", [field.name for field in fields(PeakBytes)])
def test_tensors_of_every_use_take_memory_of_the_gpu(use: str) -> None:
    usual = workloads().workloads[0]
    larger = replace(usual, peak=replace(usual.peak, **{use: getattr(usual.peak, use) + 10**9}))
    assert workload.needed_gb(larger, 1) == pytest.approx(workload.needed_gb(usual, 1) + GPU_FRAGMENTS)


def test_besides_its_tensors_a_gpu_holds_a_context_and_with_several_ranks_their_messages() -> None:
    (usual, _) = workloads(large_gb=10.0).workloads
    assert workload.needed_gb(usual, 1) == pytest.approx(10 * 1.1 + 0.8)
    assert workload.needed_gb(usual, 2) == workload.needed_gb(usual, 8) == pytest.approx(10 * 1.1 + 0.8 + 0.5)


def test_a_job_that_may_not_take_less_at_once_needs_room_for_all() -> None:
    found = workloads(small_gb=20.0, large_gb=60.0)
    assert workload.is_too_small(found, job(out_of_memory="fail", micro_batch=48), 48.0)
    assert not workload.is_too_small(found, job(micro_batch=48), 48.0), "a restart halves it"


@pytest.mark.parametrize(("gpu_gb", "windows"), [(80.0, 48), (24.0, 24), (12.0, 12), (1.0, None)])
def test_the_largest_micro_batch_that_fits_divides_the_share(gpu_gb: float, windows: int | None) -> None:
    assert workload.largest_that_fits(workloads(small_gb=1.0, large_gb=40.0), job(), gpu_gb) == windows


def test_a_gpu_of_the_least_memory_holds_all_at_once_and_no_smaller_one_does() -> None:
    found = workloads(small_gb=1.0, large_gb=29.95)
    whole = workload.whole_gb(found, job())
    assert whole == pytest.approx(33.8)
    assert workload.largest_that_fits(found, job(), whole) == 48
    assert workload.largest_that_fits(found, job(), whole - 0.1) == 24
    assert workload.whole_gb(workloads(large_gb=1e6), job()) is None


def test_an_unmeasured_speed_follows_from_the_gpu_and_is_no_more_than_its_peak() -> None:
    fast, slow = (
        workload.roofline(workloads(), job(precision="bf16"), name, 80.0) for name in ("H100 SXM", "RTX 3090")
    )
    assert fast is not None and slow is not None
    assert fast.steps_per_s > 5 * slow.steps_per_s
    assert slow.mfu == pytest.approx(workload.EFFICIENCY)
    assert fast.steps_per_s == pytest.approx(workload.EFFICIENCY * 989.4)


def test_nothing_is_estimated_of_a_gpu_that_is_in_no_table_or_has_no_room() -> None:
    assert workload.roofline(workloads(), job(), "GT 1030", 80.0) is None
    assert workload.roofline(workloads(small_gb=20.0), job(), "RTX 3090", 8.0) is None


def test_what_earlier_trainings_reached_counts_instead_of_a_usual_share() -> None:
    spec = job(precision="bf16")
    run = MeasuredRun(
        provider="vast", host="h", gpu_name="RTX 3090", gpus=1, gpu_memory_gb=80.0,
        spec_json=dump_job(spec), steps_per_s=7.1,
    )  # fmt: skip
    assert workload.efficiency_of([run], lambda _: workloads()) == pytest.approx(0.1)
    assert workload.efficiency_of([run], lambda _: None) == workload.EFFICIENCY
    on_cpu, unmeasured = replace(run, gpu_name=""), replace(run, steps_per_s=None)
    for other in (on_cpu, unmeasured):
        assert workload.efficiency_of([*[other] * 20, run], lambda _: workloads()) == pytest.approx(0.1)


def query_of(spec: JobSpec) -> object:
    return program_of(spec).workload_query(context_of(spec))


def test_jobs_whose_steps_are_the_same_ask_the_same() -> None:
    assert query_of(job(seed=3, steps=7)) == query_of(job(seed=4, steps=9))
    assert query_of(job(batch=64)) != query_of(job())
    assert query_of(command_job()) is None


def gpu(name: str, *, small_gb: float, large_gb: float) -> workload.GpuFit:
    found = workload.fit_of(workloads(small_gb=small_gb, large_gb=large_gb), JOB, [name], 0.5)
    return found.gpus[0]


def test_a_gpu_that_holds_all_windows_at_once_has_its_time_estimated() -> None:
    found = gpu("RTX 4090", small_gb=1.0, large_gb=10.0)
    assert (found.windows, found.memory_gb, found.needed_gb) == (48, 24.0, pytest.approx(11.8))
    assert found.step_s == pytest.approx(1 / 165.2 / 0.5)
    assert found.train_s == pytest.approx(100 / 165.2 / 0.5)
    assert found.mfu == pytest.approx(0.5)


def test_a_gpu_that_holds_less_at_once_still_holds_the_job_and_one_without_room_does_not() -> None:
    assert gpu("RTX 4090", small_gb=1.0, large_gb=40.0).windows == 24
    full = gpu("RTX 4090", small_gb=30.0, large_gb=40.0)
    assert (full.windows, full.step_s, full.train_s, full.mfu) == (None, None, None, None)
    assert full.min_gb == pytest.approx(33.8)


def test_every_known_gpu_is_looked_at_in_each_of_its_sizes_and_those_that_hold_it_come_first() -> None:
    fit = workload.fit_of(workloads(small_gb=30.0, large_gb=60.0), JOB, [], 0.4)
    assert len(fit.gpus) == sum(len(peak.sizes_gb) for peak in PEAKS.values())
    holds = [each.windows is not None for each in fit.gpus]
    assert holds == sorted(holds, reverse=True)
    assert fit.holds
    assert [each.memory_gb for each in fit.gpus if each.gpu == "A100"] == [40.0, 80.0]
    times = [each.step_s for each in fit.gpus if each.step_s is not None]
    assert times == sorted(times)


def test_a_name_of_the_market_has_the_sizes_of_its_kind_and_an_unknown_one_is_named() -> None:
    fit = workload.fit_of(workloads(), JOB, ["A100 SXM4"], 0.4)
    assert {(each.gpu, each.memory_gb) for each in fit.gpus} == {("A100 SXM4", 40.0), ("A100 SXM4", 80.0)}
    with pytest.raises(KeyError, match="GT 1030"):
        workload.fit_of(workloads(), JOB, ["GT 1030"], 0.4)
