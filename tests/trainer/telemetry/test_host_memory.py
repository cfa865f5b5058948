"""What a step frees stays with the process for the next one; what a rank shares moves into large pages."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

_LINUX = tuple(int(number) for number in re.findall(r"\d+", platform.release())[:2])
_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")

_STEPS = """
import resource
from trainer.telemetry.host_memory import keep_freed_memory

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

_COPY = """
import ctypes
import os
from trainer.telemetry.host_memory import move_to_large_pages

def let_the_kernel_choose_large_pages(choose):
    PR_SET_THP_DISABLE = 41
    assert ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, int(not choose), 0, 0, 0) == 0

let_the_kernel_choose_large_pages(False)
pieces = [bytearray(os.urandom(100_000)) for _ in range(1_000)]
before = [sum(piece) for piece in pieces]

def small_mib():
    lines = open("/proc/self/smaps_rollup").read().splitlines()
    kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines[1:])}
    return (kib["Anonymous"] - kib["AnonHugePages"]) // 1024

if os.fork():
    raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
shared = small_mib()
let_the_kernel_choose_large_pages(True)
move_to_large_pages()
assert [sum(piece) for piece in pieces] == before
print(shared, small_mib())
"""


def _printed(program: str) -> list[int]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return [int(number) for number in done.stdout.split()]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc is not glibc's here")
def test_a_step_is_given_no_new_memory_for_what_the_one_before_freed() -> None:
    """A hundred megabytes, 24,000 pages, in pieces as small as many tensors."""
    (faults,) = _printed(_STEPS)
    assert faults < 1_000


@pytest.mark.skipif(
    not _PAGES.exists() or "[never]" in _PAGES.read_text() or _LINUX < (6, 1),
    reason="this kernel has no large pages to move to",
)
def test_a_copy_has_what_it_shares_in_large_pages_of_its_own_and_unchanged() -> None:
    shared, left = _printed(_COPY)
    assert shared > 90
    assert left < shared / 2
