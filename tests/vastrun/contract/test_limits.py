"""Limits: a value is refused in the same words with annotated-types and without it."""

import json
import subprocess
import sys

import pytest

from vastrun.contract import limits

READ = """
import json, sys
if sys.argv[1] == "without":
    sys.modules["annotated_types"] = None  # an import of it fails
from vastrun.trainer.job.config import TrainConfig
from vastrun.contract.records import RecordError, read_as
from vastrun.contract.workload import PeakBytes

said = []
for kind, value in [
    (TrainConfig, {"steps": 0}),
    (TrainConfig, {"seed": 2**63}),
    (TrainConfig, {"data": {"dt": 0}}),
    (TrainConfig, {"data": {"betas": []}}),
    (PeakBytes, {"parameters": 2**61, "gradients": 0, "optimiser": 0, "activations": 0, "other": 0}),
]:
    try:
        read_as(kind, value)
    except RecordError as error:
        said.append(str(error))
print(json.dumps(said))
"""


def faults(how: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", READ, how], capture_output=True, text=True, check=True, timeout=60
    )
    return json.loads(done.stdout)


def test_a_training_reads_its_limits_without_annotated_types() -> None:
    said = faults("without")
    assert said[0] == "steps: expected at least 1, not 0"
    assert len(said) == 5


def test_what_is_refused_does_not_depend_on_the_package() -> None:
    pytest.importorskip("annotated_types")
    assert faults("without") == faults("with")


def test_the_marks_are_those_of_annotated_types_where_it_is_installed() -> None:
    package = pytest.importorskip("annotated_types")
    assert all(getattr(limits, name) is getattr(package, name) for name in limits.__all__)
