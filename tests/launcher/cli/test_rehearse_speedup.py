"""`rehearse JOB speedup`: one and two ranks train here, and what they lose is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.launcher.cli.test_rehearse import Desk

pytestmark = [pytest.mark.slow, pytest.mark.torch]

TRAINING = "{steps: 4, batch: 8, data: {train: 8, test: 2}, model: {dim: 16, depth: 1}}"


def test_one_and_two_ranks_are_measured_and_the_result_is_kept(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.writes(f"train: {TRAINING}", "ranks: 2")
    document = json.loads(desk.types("speedup", "--seconds", "1", "--json").stdout)
    assert [(step["step"], step["exit_code"]) for step in document["steps"]] == [
        ("config", 0),
        ("speedup", 0),
    ]
    speedup = document["speedup"]
    assert (speedup["gpu"], speedup["batch"]) == ("", 8)
    assert [row["ranks"] for row in speedup["rows"]] == [1, 2]
    for row in speedup["rows"]:
        assert row["samples_per_s"] == pytest.approx(8 / row["step_s"])
        assert row["speedup"] == pytest.approx(row["ranks"] * row["efficiency"])
        assert row["collectives"] is not None
    (kept,) = (tmp_path / "cache" / "vastrun" / "speedups").glob("*.cpu.json")
    assert json.loads(kept.read_text()) == speedup
