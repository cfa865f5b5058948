"""Programs whose machines are destroyed: three of them for real; and the judgement sees what is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.chaos.frameworks.judgement import Judged, judge
from benchmarks.chaos.frameworks.launches import train, train_undisturbed
from benchmarks.chaos.frameworks.plans import PROGRAMS, Plan, plan
from benchmarks.chaos.layouts.train import LAST_STEP, SAVE_EVERY
from vastrun.contract.checkpoint_folder import CheckpointFolder, checksum_file

PLAIN = PROGRAMS["plain_torch"]
WEIGHTS = {"weight": torch.ones(2)}


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("name", ["plain_torch", "accelerate", "pairs"])
def test_a_program_whose_machine_is_destroyed_ends_with_the_weights_of_an_undisturbed_run(name: str) -> None:
    program = PROGRAMS[name]
    destroyed = Plan(program=program, number=0, steps=(24,), delay_s=0.1)
    judged = train(destroyed, train_undisturbed(program))
    assert judged.is_good, str(judged)
    assert judged.starts[-1] > 0


def test_the_plans_of_ten_runs_destroy_machines_before_and_after_the_first_checkpoint_and_twice() -> None:
    plans = [plan(PLAIN, 0, number) for number in range(10)]
    assert plans == [plan(PLAIN, 0, number) for number in range(10)]
    assert sum(one.steps[0] < SAVE_EVERY for one in plans) == 2
    assert sum(len(one.steps) == 2 for one in plans) == 2
    assert all(0 < step < LAST_STEP for one in plans for step in one.steps)


def machine(folder: Path, start: int, *, downloaded: int = 0, damaged: bool = False) -> dict[str, Any]:
    """A run on one machine that started after a step, and whose checkpoint of another one was downloaded."""
    folder.mkdir()
    (folder / "log.txt").write_text(f"1.000 rank0 starts after step {start}\n")
    if downloaded:
        checkpoints = CheckpointFolder(path=folder / "checkpoints", keep=2)
        part = checkpoints.part(downloaded)
        part.mkdir(parents=True)
        (part / "state").write_bytes(b"weights")
        checkpoints.commit(downloaded, [checksum_file(part / "state")])
        if damaged:
            (folder / f"checkpoints/step-{downloaded:06}/state").write_bytes(b"weightX")
    return {"out_dir": str(folder), "created_at": start, "verdict": "LOST", "cause": "lost"}


def judged_chain(
    folder: Path, *, start: int, printed: str, damaged: bool = False, weights: Any = None, **last: Any
) -> Judged:
    """A chain of two machines; the first was destroyed when its checkpoint of step 10 was downloaded."""
    first = machine(folder / "first", 0, downloaded=10, damaged=damaged)
    second = machine(folder / "second", start) | {"verdict": "SUCCEEDED", "cause": None, "created_at": 99}
    results = folder / "second" / "outputs" / "results"
    results.mkdir(parents=True)
    torch.save(weights or WEIGHTS, results / "weights.pt")
    return judge(
        Plan(program=PLAIN, number=0, steps=(14,), delay_s=0.0),
        rows=[second | last, first],
        exit_code=0,
        logs=[printed],
        left_rented=0,
        expected=WEIGHTS,
    )


SAVED = "saved step 5\nsaved step 10\n"


def test_a_run_that_continued_from_its_newest_checkpoint_is_good(tmp_path: Path) -> None:
    judged = judged_chain(tmp_path, start=10, printed=SAVED)
    assert judged.is_good, str(judged)
    assert json.dumps([judged.starts, judged.newest]) == "[[0, 10], [10]]"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"start": 5}, "NOT FROM THE NEWEST"),
        ({"start": 0}, "NOT FROM THE NEWEST"),
        ({"printed": "saved step 5\n"}, "INCOMPLETE: 1"),
        ({"damaged": True}, "INCOMPLETE: 1"),
        ({"weights": {"weight": torch.ones(2) + 1e-6}}, "OTHER WEIGHTS"),
        ({"weights": {"other": torch.ones(2)}}, "OTHER WEIGHTS: inf"),
        ({"verdict": "FAILED"}, "WRONG: the last run ended with FAILED"),
    ],
)
def test_what_goes_wrong_with_a_run_is_seen(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    judged = judged_chain(tmp_path, **{"start": 10, "printed": SAVED, **change})
    assert not judged.is_good
    assert said in str(judged)
