"""What `run/status.json` says of ranks that start, train and end."""

import json
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from vastrun.contract import layout
from vastrun.onstart.supervision.progress import ProgressTracker, write_status
from vastrun.onstart.supervision.rank_process import RankProcess


def step_told(box: Path, steps_of: Mapping[int, int]) -> int:
    """The step in the status of two ranks, of which these have started and are at these steps."""
    folder = box / layout.HEARTBEATS
    folder.mkdir(parents=True)
    for rank, step in steps_of.items():
        (folder / f"rank-{rank}").write_text(f"{step} forward 100.000 {1000 + rank}\n")
    processes = [RankProcess(rank=rank, pid=1000 + rank, started_at=99.0) for rank in steps_of]
    write_status(box, (), processes, world_size=2, steps=9)
    step: int = json.loads((box / layout.STATUS).read_text())["step"]
    return step


@pytest.mark.parametrize(("steps_of", "step"), [({}, 0), ({1: 7}, 0), ({0: 0, 1: 7}, 0), ({0: 3, 1: 7}, 3)])
def test_the_step_is_one_that_all_reached(tmp_path: Path, steps_of: Mapping[int, int], step: int) -> None:
    assert step_told(tmp_path, steps_of) == step


def test_the_step_of_a_program_that_reports_none_is_that_of_its_curves(tmp_path: Path) -> None:
    path = tmp_path / layout.METRICS
    path.parent.mkdir(parents=True)
    path.write_text('{"step": 390, "loss": 1.0}\n{"step": 400, "lr": 0.1}\n{"loss": 0.5}\n{"ste')
    codes = (None, 1)
    processes = [RankProcess(rank=n, pid=1000 + n, started_at=99.0, exit_code=codes[n]) for n in range(2)]
    write_status(tmp_path, (), processes, world_size=2, steps=0)
    status = json.loads((tmp_path / layout.STATUS).read_text())
    assert (status["step"], status["loss"]) == (400, 0.5)
    assert [rank["pid"] for rank in status["ranks"]] == [1000, None]  # the other one has ended
    path.write_text('{"step": 400, "lr": 0.1}\n{"loss": 2.0}\n{"ste')
    assert step_told(tmp_path, {0: 3, 1: 7}) == 3


def test_a_rank_stands_still_since_its_last_heartbeat_changed(tmp_path: Path) -> None:
    beat = tmp_path / layout.HEARTBEATS / "rank-0"
    beat.parent.mkdir(parents=True)
    tracker, began = ProgressTracker(box=tmp_path), time.monotonic()

    def still_s() -> float:
        (progress,) = tracker.ranks_progress([RankProcess(rank=0, pid=1000, started_at=99.0)])
        return progress.still_s

    assert still_s() == 0, "no heartbeat yet"
    beat.write_text("3 forward 100.000 1000\n")
    assert still_s() == 0
    assert 0 < still_s() <= time.monotonic() - began
    beat.write_text("4 forward 101.000 1000\n")
    assert still_s() == 0
