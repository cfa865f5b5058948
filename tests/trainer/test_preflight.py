"""The preflight: ranks all-reduce once before anything is trained."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from tests.trainer.conftest import Box
from trainer import layout


@pytest.mark.torch
def test_two_ranks_all_reduce_and_the_bandwidth_is_told() -> None:
    command = [sys.executable, "-m", "trainer.preflight", "comm", "--ranks", "2"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert finished.returncode == 0, finished.stderr
    assert re.fullmatch(r"all-reduce 2 ranks gloo 16 MB: \d+\.\d GB/s, sum right\n", finished.stdout)


@pytest.mark.torch
def test_ranks_without_their_gpus_fail_and_never_fall_back_to_the_cpu(box: Box) -> None:
    job = box.json(layout.JOB)
    (box.path / layout.JOB).write_text(json.dumps(job | {"gpus": 100}))
    command = [sys.executable, "-m", "trainer.preflight", "comm", "--ranks", "1"]
    environment = os.environ | {"VASTRUN_BOX": str(box.path), "CUDA_VISIBLE_DEVICES": ""}
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (finished.returncode, finished.stdout) == (1, "")
    assert "DeviceError: GPU 0 is needed, but torch" in finished.stderr
    assert "rank 0 exited 1" in finished.stderr
