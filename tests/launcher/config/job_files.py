"""Read job files of the tests, and the faults of those that are wrong."""

from pathlib import Path

import pytest

from vastrun.launcher.config.job_loader import load_job
from vastrun.launcher.core.errors import JobFileError
from vastrun.launcher.core.job import JobSpec

BROKEN = sorted((Path(__file__).parent / "broken").glob("*.yaml"))
TRAIN = "name: job\ntrain:\n"
COMMAND = "name: job\nsuccess: {exit_code: 0}\n"


def load(text: str, *overrides: str) -> JobSpec:
    return load_job(text, "job.yaml", overrides, "/home/me")


def faults(text: str, *overrides: str) -> tuple[str, ...]:
    with pytest.raises(JobFileError) as caught:
        load(text, *overrides)
    return caught.value.faults
