"""Under the supervisor: what the probe finds and what a retry changes need no new start of the ranks."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.onstart.supervision.forked import Train, starting
from vastrun.contract import layout

pytestmark = pytest.mark.torch

SHORT = {"what": "out of memory", "starts": 9}


@pytest.fixture
def train(tmp_path: Path) -> Iterator[Train]:
    yield from starting(tmp_path)


@pytest.mark.slow
def test_a_training_finds_what_fits_and_computes_less_when_that_no_longer_does(train: Train) -> None:
    before = SHORT | {"where": "backward", "step": 0, "rank": 1, "above": 2}
    later = SHORT | {"where": "forward", "step": 13, "rank": 0, "above": 1}
    run = train(before, later, train={"probe": "on", "out_of_memory": "retry"})
    undisturbed = train(train={"micro_batch": 2})

    outcome = run.outcome()
    assert (outcome.reason, [a.micro_batch for a in outcome.starts]) == ("finished", [1]), run.log()
    assert json.loads((run.box / layout.PLAN).read_text())["accumulation"] == 4
    said = [
        "out of memory: 4 windows at once are too many for rank 1",
        "memory: 2 windows at once fit on every rank",
        "training begins: 2 ranks on cpu, ddp (on CPUs every rank holds the whole model), fp32, "
        "batch 8 = 2 ranks x 2 windows x 2",
        "out of memory: 2 windows at once are too many for rank 0",
    ]
    places = [run.log().find(line) for line in said]
    assert min(places) >= 0, run.log()
    assert places == sorted(places)
    assert undisturbed.outcome().reason == "finished"
    assert run.losses() == pytest.approx(undisturbed.losses(), abs=1e-5)


@pytest.mark.slow
def test_an_update_that_a_retry_cannot_repeat_starts_the_ranks_again_with_less(train: Train) -> None:
    fault = SHORT | {"where": "optimizer", "step": 13, "rank": 1, "above": 2}
    run = train(fault, train={"out_of_memory": "retry"})
    outcome = run.outcome()
    assert outcome.reason == "finished", run.log()
    assert [(a.reason, a.micro_batch) for a in outcome.starts] == [("oom", 4), ("finished", 2)]
