"""The preflight: ranks all-reduce once before anything is trained."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest


@pytest.mark.torch
def test_two_ranks_all_reduce_and_the_bandwidth_is_told() -> None:
    command = [sys.executable, "-m", "trainer.preflight", "comm", "--ranks", "2"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert finished.returncode == 0, finished.stderr
    assert re.fullmatch(r"all-reduce 2 ranks gloo 16 MB: \d+\.\d GB/s, sum right\n", finished.stdout)
