"""A slot that uses more memory than it may loses its largest process, and says so."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.waiting import eventually
from vastrun.contract import layout
from vastrun.onstart.holding.hold import enforce_memory_limit
from vastrun.onstart.holding.machine import list_processes
from vastrun.onstart.supervision.reading import count, memory_kills, memory_use

_EATS = "import sys, time; x = bytearray(int(sys.argv[1]) << 20); print('full', flush=True); time.sleep(60)"
_FORKS = (
    "import os, time; x = bytearray(80 << 20)\n"
    "for _ in range(3):\n    if not os.fork():\n        break\n"
    "print('full', flush=True); time.sleep(60)"
)


Starts = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def slot(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def starts(slot: Path) -> Iterator[Starts]:
    """Starts a program of the slot, and returns once it has its memory; none of them outlives the test."""
    processes: list[subprocess.Popen[str]] = []

    def start(program: str, *arguments: str, lines: int = 1) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            env={"PATH": os.environ["PATH"], "VASTRUN_BOX": str(slot)},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        processes.append(process)
        assert process.stdout is not None
        for _ in range(lines):
            assert process.stdout.readline() == "full\n"
        return process

    yield start
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_the_largest_process_is_killed_and_the_others_go_on(slot: Path, starts: Starts) -> None:
    small, large = starts(_EATS, "10"), starts(_EATS, "150")
    before = memory_kills(slot)

    excess = enforce_memory_limit(slot, 120, list_processes())

    assert excess is not None
    assert f" ({large.pid}) was killed" in excess
    assert large.wait() == -signal.SIGKILL
    assert small.poll() is None
    assert "of 0.1 GiB for this slot" in excess
    events = [slot / layout.MEMORY_EVENTS]
    assert (count("oom_kill", events), count("limit", events)) == (1, 120 << 20)
    assert count("peak", events) > 120 << 20
    assert memory_use(slot).endswith(" of 0.1 GiB")
    assert memory_kills(slot) == before + 1, "the slot's supervisor learns why its rank was killed"


def test_a_slot_within_its_limit_and_its_neighbour_are_left_alone(slot: Path, starts: Starts) -> None:
    process = starts(_EATS, "50")
    assert enforce_memory_limit(slot, 400, list_processes()) is None
    assert enforce_memory_limit(slot / "another", 10, list_processes()) is None
    assert process.poll() is None
    assert count("oom_kill", [slot / layout.MEMORY_EVENTS]) == 0


def test_pages_that_forks_share_are_counted_once(slot: Path, starts: Starts) -> None:
    starts(_FORKS, lines=4)
    eventually(lambda: sum(each.box == str(slot) for each in list_processes().values()) == 4)
    assert enforce_memory_limit(slot, 200, list_processes()) is None
