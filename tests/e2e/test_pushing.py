"""A box that pushes its checkpoints by itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.terminal import JOBS, Terminal

pytestmark = pytest.mark.torch


def test_the_last_checkpoint_is_at_the_url_when_the_run_is_over(terminal: Terminal, tmp_path: Path) -> None:
    there = tmp_path / "there"
    done = terminal.type("launch", str(JOBS / "learn.yaml"), "--set", f"checkpoints.push=file://{there}")

    assert done.exit_code == 0, done.err
    (run,) = there.iterdir()
    assert json.loads((run / "latest.json").read_text())["step"] == 30
    state = Path("step-000030", "state.pt")
    assert (run / state).read_bytes() == (terminal.outputs() / "checkpoints" / state).read_bytes()
    assert "push checkpoint step-000030 pushed" in (terminal.outputs() / "run.log").read_text()
    assert terminal.leftovers() == []


def test_a_url_that_does_not_work_hurts_nothing(terminal: Terminal) -> None:
    done = terminal.type("launch", str(JOBS / "learn.yaml"), "--set", "checkpoints.push=nowhere://x")

    assert done.exit_code == 0, done.err
    assert "push checkpoints are not pushed" in (terminal.outputs() / "run.log").read_text()
