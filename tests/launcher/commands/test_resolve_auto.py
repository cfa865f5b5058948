"""What a job leaves to `auto` is a number before anything is rented: found once, and kept with the run."""

import pytest

from tests.jobs import FakeForeteller, train_job, workloads
from vastrun.launcher.commands.estimate import EstimateError, resolve_auto
from vastrun.launcher.core.errors import JobValueError
from vastrun.launcher.core.job import JobSpec, Resources
from vastrun.trainer.job.config import TrainConfig


def job(gpu_memory_gb: object) -> JobSpec:
    resources = Resources(gpus=2, gpu_memory_gb=gpu_memory_gb)  # type: ignore[arg-type]
    return train_job(train=TrainConfig(batch=96), resources=resources)


@pytest.fixture
def estimator() -> FakeForeteller:
    estimator = FakeForeteller()
    estimator.answer = workloads(strategy="ddp", small_gb=2.0, large_gb=29.95)
    return estimator


def test_the_memory_is_what_a_share_of_the_batch_needs_at_once_with_the_margins(
    estimator: FakeForeteller,
) -> None:
    found, message = resolve_auto(job("auto"), estimator)  # type: ignore[arg-type]
    assert found == job(34.3)
    assert message.startswith("resources.gpu_memory_gb: auto is 34.3: ")


def test_without_torch_a_line_says_what_is_missing_and_what_to_type(estimator: FakeForeteller) -> None:
    estimator.answer = EstimateError("python has no torch; python -m pip install torch brings it")
    with pytest.raises(JobValueError, match="cannot estimate auto: python has no torch; ") as refused:
        resolve_auto(job("auto"), estimator)  # type: ignore[arg-type]
    assert (refused.value.hint, refused.value.exit_code) == ("--set resources.gpu_memory_gb=24", 2)


def test_a_job_that_no_gpu_holds_at_once_has_no_memory_to_ask_for(estimator: FakeForeteller) -> None:
    estimator.answer = workloads(strategy="ddp", large_gb=1e6)
    with pytest.raises(JobValueError, match="no GPU is large enough"):
        resolve_auto(job("auto"), estimator)  # type: ignore[arg-type]
