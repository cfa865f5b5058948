"""A program that never beats: lines in its log are what moves."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.onstart.supervision.launches import Launched

PRINTS_FOR_FIVE_SECONDS_AND_FALLS_SILENT = """
import time

def waits_for_ever():
    time.sleep(600)

for step in range(25):
    print("step", step, flush=True)
    time.sleep(0.2)
waits_for_ever()
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Launched]:
    program = PRINTS_FOR_FIVE_SECONDS_AND_FALLS_SILENT
    launched = Launched(tmp_path / "box", program, beating=False, ranks=1, stall_s=2)
    yield launched
    launched.end()


def test_a_program_that_prints_lives_and_one_that_fell_silent_hangs(run: Launched) -> None:
    outcome = run.outcome()
    assert (run.wait(), outcome.reason) == (75, "hang")
    assert outcome.hang is not None
    assert outcome.hang.frame == "code/program.py:5 waits_for_ever"
    assert outcome.hang.stalled_s >= 2
    assert "step" not in outcome.detail, "it never said where it is"
    assert "rank0 step 24" in run.log()
