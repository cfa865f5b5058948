"""A profile of a training under its supervisor: named in the job file, and requested while it runs."""

from __future__ import annotations

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


def test_steps_are_profiled_as_the_job_says_and_when_it_is_requested(terminal: Terminal) -> None:
    in_job = ("--set", "train.profile={step: 7, steps: 3}")
    launch = terminal.start("launch", str(JOBS / "endless.yaml"), *in_job)
    launch.shows("profile of steps 7 to 9: profile/trace-step-7.json.gz")

    done = terminal.type("profile", "last", "--steps", "4", "--json")

    assert done.exit_code == 0, done.err
    document = done.json()
    assert labels(Path(document["trace"])) == expected(document["step"], 4)
    assert "aten::" in Path(document["operations"]).read_text()
    assert terminal.type("stop", "last").exit_code == 0
    launch.end()
    assert labels(terminal.outputs() / "profile" / "trace-step-7.json.gz") == expected(7, 3)
    assert Path(document["trace"]).is_file()
    assert terminal.leftovers() == []
