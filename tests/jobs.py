"""Jobs of the tests, and what is estimated of them without a GPU or torch."""

from dataclasses import replace
from typing import Any

from vastrun.contract.workload import PeakBytes, Workload, Workloads
from vastrun.launcher.config.program_kinds import job_type
from vastrun.launcher.core.job import JobSpec, Limits, Resources, Success
from vastrun.trainer.job.config import TrainConfig

TrainJob: Any = job_type(("train",))
"""A job with the section `train:`."""


class FakeForeteller:
    """Says of every job what it was given to say."""

    def __init__(self) -> None:
        self.answer: Workloads | Exception | None = None

    def workloads(self, spec: JobSpec) -> Workloads | None:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def known(self, spec: JobSpec) -> Workloads | None:
        return None if isinstance(self.answer, Exception) else self.answer


def workloads(*, strategy: str = "single", small_gb: float = 1.0, large_gb: float = 30.0) -> Workloads:
    """A step of 1 TFLOP and 1 GB: tensors of so many GB with 1 window at once, and with 48."""
    made = [
        Workload(
            strategy=strategy,
            micro_batch=size,
            flops=1e12,
            traffic_bytes=1e9,
            operations=100,
            peak=PeakBytes(parameters=0, gradients=0, optimiser=0, activations=int(gb * 1e9), other=0),
        )
        for size, gb in ((48, large_gb), (1, small_gb))
    ]
    return Workloads(parameters=1000, workloads=tuple(made), torch="2.13.0", seconds=4.0)


def train_job(*, steps: int = 10, **changes: object) -> JobSpec:
    """A job for the onboard trainer on two GPUs."""
    job = TrainJob(
        name="demo",
        resources=Resources(gpus=2),
        limits=Limits(hours=1.0, usd=3.0),
        train=TrainConfig(steps=steps, batch=8),
    )
    return replace(job, **changes)  # type: ignore[arg-type]


def command_job(**changes: object) -> JobSpec:
    """A job that runs the user's own command on two GPUs."""
    job = JobSpec(
        name="demo",
        resources=Resources(gpus=2),
        limits=Limits(hours=1.0, usd=3.0),
        command=("python", "train.py"),
        success=Success(exit_code=0),
    )
    return replace(job, **changes)  # type: ignore[arg-type]
