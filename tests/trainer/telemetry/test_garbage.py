"""What a step frees stays with the process for the next one."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

_STEPS = """
import resource
from trainer.telemetry.garbage import keep_freed_memory

keep_freed_memory()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def faults_of_a_step():
    before = faults()
    pieces = [bytearray(100_000) for _ in range(1_000)]
    del pieces
    return faults() - before

faults_of_a_step()
print(faults_of_a_step())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc is not glibc's here")
def test_a_step_is_given_no_new_memory_for_what_the_one_before_freed() -> None:
    """A hundred megabytes, 24,000 pages, in pieces as small as many tensors."""
    done = subprocess.run([sys.executable, "-c", _STEPS], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1_000
