"""Which GPUs hold a job, and how long its steps take there, by what was estimated of a step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.jobs import train_job, workloads
from vastrun.contract.config import TrainConfig
from vastrun.contract.gpus import PEAKS
from vastrun.launcher.core.job import Resources
from vastrun.launcher.decisions.fit import GpuFit, fit_of

JOB = replace(train_job(resources=Resources(gpus=1)), train=TrainConfig(precision="bf16", steps=100))


def gpu(name: str, *, small_gb: float, large_gb: float) -> GpuFit:
    found = fit_of(workloads(small_gb=small_gb, large_gb=large_gb), JOB, [name], 0.5)
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
    assert full.least_gb == pytest.approx(33.8)


def test_every_known_gpu_is_looked_at_in_each_of_its_sizes_and_those_that_hold_it_come_first() -> None:
    fit = fit_of(workloads(small_gb=30.0, large_gb=60.0), JOB, [], 0.4)
    assert len(fit.gpus) == sum(len(peak.sizes_gb) for peak in PEAKS.values())
    holds = [each.windows is not None for each in fit.gpus]
    assert holds == sorted(holds, reverse=True)
    assert fit.holds
    assert [each.memory_gb for each in fit.gpus if each.gpu == "A100"] == [40.0, 80.0]
    times = [each.step_s for each in fit.gpus if each.step_s is not None]
    assert times == sorted(times)


def test_a_name_of_the_market_has_the_sizes_of_its_kind_and_an_unknown_one_is_named() -> None:
    fit = fit_of(workloads(), JOB, ["A100 SXM4"], 0.4)
    assert {(each.gpu, each.memory_gb) for each in fit.gpus} == {("A100 SXM4", 40.0), ("A100 SXM4", 80.0)}
    with pytest.raises(KeyError, match="GT 1030"):
        fit_of(workloads(), JOB, ["GT 1030"], 0.4)
