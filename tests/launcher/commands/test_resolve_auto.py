"""What a job leaves to `auto` is a number before anything is rented: found once, and kept with the run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fakes import FakeClock, FakeProvider
from tests.jobs import FakeForeteller, train_job, workloads
from vastrun.launcher.commands.estimate import EstimateError, resolve_auto
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Phase, Run
from vastrun.launcher.core.errors import JobValueError
from vastrun.launcher.core.job import JobSpec, Resources
from vastrun.trainer.job.config import TrainConfig


def job(*, batch: int | None = None, **resources: object) -> JobSpec:
    train = TrainConfig(batch="auto" if batch is None else batch)
    return train_job(train=train, resources=Resources(gpus=2, **resources))  # type: ignore[arg-type]


@pytest.fixture
def estimator() -> FakeForeteller:
    estimator = FakeForeteller()
    estimator.answer = workloads(strategy="ddp", small_gb=2.0, large_gb=29.95)
    return estimator


@pytest.fixture
def market() -> FakeProvider:
    return FakeProvider(FakeClock(), usd_per_hour=1.0)


def test_the_memory_is_what_a_share_of_the_batch_needs_at_once_with_the_margins(
    estimator: FakeForeteller, market: FakeProvider
) -> None:
    found, message = resolve_auto(job(batch=96, gpu_memory_gb="auto"), estimator, market)  # type: ignore[arg-type]
    assert found == job(batch=96, gpu_memory_gb=34.3)
    assert message.startswith("resources.gpu_memory_gb: auto is 34.3: ")


@pytest.mark.parametrize(
    ("resources", "memory_gb"),
    [
        ({"gpu_memory_gb": 40.0}, 40.0),
        ({"gpu_names": ("A100 SXM4", "RTX 4090")}, 24.0),
        ({"gpu_names": ("A100 SXM4",), "gpu_memory_gb": 80.0}, 80.0),
    ],
)
def test_the_batch_is_that_of_the_smallest_gpu_that_it_may_come_to_and_the_job_asks_for_such(
    resources: dict[str, object], memory_gb: float, estimator: FakeForeteller, market: FakeProvider
) -> None:
    found, message = resolve_auto(job(**resources), estimator, market)  # type: ignore[arg-type]
    assert found == job(batch=2 * int(memory_gb), **{**resources, "gpu_memory_gb": memory_gb})
    assert f"a GPU with {memory_gb:g} GB has room for {memory_gb:g} windows at once" in message


def test_on_this_computer_its_own_gpus_say_how_large_they_are(estimator: FakeForeteller) -> None:
    here = FakeProvider(FakeClock(), usd_per_hour=0.0)
    here.free = True
    assert resolve_auto(job(), estimator, here)[0] == job(batch=48, gpu_memory_gb=24.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("names", [(), ("GT 1030",)])
def test_a_market_where_gpus_may_be_of_any_size_gives_no_batch(
    names: tuple[str, ...], estimator: FakeForeteller, market: FakeProvider
) -> None:
    with pytest.raises(JobValueError, match="follows from the memory of the GPUs") as refused:
        resolve_auto(job(gpu_names=names), estimator, market)  # type: ignore[arg-type]
    assert "--set resources.gpu_memory_gb=24" in refused.value.hint


def test_a_run_that_continues_another_one_keeps_its_batch(
    estimator: FakeForeteller, market: FakeProvider
) -> None:
    parent = Run(
        id="calm-heron-3f1a", job="demo", spec_json=dump_job(job(batch=64)), provider="fake",
        phase=Phase.ENDED, out_dir="", created_at=0.0, phase_at=0.0,
    )  # fmt: skip
    found, message = resolve_auto(job(gpu_memory_gb=24.0), estimator, market, parent)  # type: ignore[arg-type]
    assert found == job(batch=64, gpu_memory_gb=24.0)
    assert "that of calm-heron-3f1a, which it continues" in message
    later = replace(parent, spec_json=dump_job(train_job(train=TrainConfig(batch=64, stage="refine"))))
    assert resolve_auto(job(gpu_memory_gb=24.0), estimator, market, later)[0] == job(  # type: ignore[arg-type]
        batch=48, gpu_memory_gb=24.0
    )


@pytest.mark.parametrize(
    ("spec", "try_this"),
    [
        (job(gpu_memory_gb=24.0), "--set train.batch=48"),
        (job(batch=8, gpu_memory_gb="auto"), "--set resources.gpu_memory_gb=24"),
    ],
)
def test_without_torch_a_line_says_what_is_missing_and_what_to_type(
    spec: JobSpec, try_this: str, estimator: FakeForeteller, market: FakeProvider
) -> None:
    estimator.answer = EstimateError("python has no torch; python -m pip install torch brings it")
    with pytest.raises(JobValueError, match="cannot estimate auto: python has no torch; ") as refused:
        resolve_auto(spec, estimator, market)  # type: ignore[arg-type]
    assert (refused.value.hint, refused.value.exit_code) == (try_this, 2)


def test_a_job_that_no_gpu_holds_at_once_has_no_memory_to_ask_for(
    estimator: FakeForeteller, market: FakeProvider
) -> None:
    estimator.answer = workloads(strategy="ddp", large_gb=1e6)
    with pytest.raises(JobValueError, match="no GPU is large enough"):
        resolve_auto(job(batch=8, gpu_memory_gb="auto"), estimator, market)  # type: ignore[arg-type]
