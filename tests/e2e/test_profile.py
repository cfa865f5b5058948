"""A profile of a training under its supervisor."""

import gzip
import json
from pathlib import Path

import pytest

from tests.e2e.terminal import JOBS, Terminal

pytestmark = [pytest.mark.torch, pytest.mark.slow]

PARTS = ["data", "forward", "backward", "optimizer"]


def labels(trace: Path) -> list[str]:
    """The ranges of a trace that begin at a step, in order."""
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    marked = [event for event in events if event.get("cat") == "user_annotation"]
    names = [event["name"] for event in sorted(marked, key=lambda event: event["ts"])]
    return [name for name in names if name in PARTS or name.startswith("step ")]


def expected(first: int, steps: int) -> list[str]:
    return [name for step in range(first, first + steps) for name in (f"step {step}", *PARTS)]


def test_steps_are_profiled_as_the_job_says(terminal: Terminal) -> None:
    in_job = ("--set", "train.profile={step: 7, steps: 3}")
    launch = terminal.start("launch", str(JOBS / "endless.yaml"), *in_job)
    launch.shows("profile of steps 7 to 9: profile/trace-step-7.json.gz")
    assert terminal.type("stop", "last").exit_code == 0
    launch.end()
    assert labels(terminal.outputs() / "profile" / "trace-step-7.json.gz") == expected(7, 3)
    assert terminal.leftovers() == []
