"""Sessions that are killed, or that look at the samples kept back, continue along the same curve."""

import json
import os
import signal
from itertools import product
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from tests.trainer import sessions
from tests.trainer.checkpoints.forged import with_file
from tests.trainer.conftest import SMALL, together
from vastrun.contract import layout
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.errors import ConfigError
from vastrun.trainer.evaluation.validation import Validation

pytestmark = pytest.mark.torch

BURGERS = {"task": "burgers", "nus": [0.1], "train": 32, "test": 8, "points": 32, "frames": 9}


def part(ranks: Ranks, box: Path, settings: dict[str, Any], until: int) -> tuple[int, list[float]]:
    """Where it began, and its losses; there is a checkpoint at its end."""
    session = sessions.begin(ranks, box, settings)
    losses = [loss for loss, _ in sessions.learn(session, session.start, until)]
    session.save(until, losses[-1], durable=True)
    return session.start, losses


def killed(ranks: Ranks, box: Path, settings: dict[str, Any]) -> None:
    """Saves the fifth step; rank 1 is killed while the eighth is being saved."""
    session = sessions.begin(ranks, box, settings)
    sessions.learn(session, 0, 5)
    session.save(5, None, durable=True)
    sessions.learn(session, 5, 8)
    session.save(8, None, durable=False)
    if ranks.rank.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    session.checkpoints.wait()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    box = sessions.prepare(tmp_path_factory.mktemp("undisturbed") / "box")
    losses: list[float] = together(part, 1, box, {}, sessions.STEPS)[0][1]
    return losses


@pytest.mark.parametrize(("strategy", "last"), [("fsdp2", 1), ("ddp", 1), ("fsdp2", 4)])
@pytest.mark.slow
def test_a_killed_session_goes_on_along_the_same_curve(
    tmp_path: Path, undisturbed: list[float], strategy: str, last: int
) -> None:
    box = sessions.prepare(tmp_path / "box")
    settings = {"strategy": strategy, "ema": 0.9}
    with pytest.raises(pytest.fail.Exception, match=r"died without a word|by peer"):
        together(killed, 2, box, settings)
    start, losses = together(part, 2, box, settings, 12)[0]
    assert start in (5, 8)
    other = {**settings, "micro_batch": 1, "activation_checkpointing": "selective"}
    again, rest = together(part, last, box, other, sessions.STEPS)[0]
    assert again == 12
    assert losses + rest == pytest.approx(undisturbed[start:], abs=1e-6)


def refusals(ranks: Ranks, box: Path, jobs: list[dict[str, Any]]) -> list[tuple[str, bool]]:
    """For each job what this rank says, and whether it leaves it to another to say it."""
    said = []
    for settings in jobs:
        with pytest.raises(ConfigError) as caught:
            sessions.begin(ranks, box, settings)
        said.append((str(caught.value), caught.value.reported_elsewhere))
    return said


@pytest.mark.slow
def test_a_job_with_another_model_or_optimiser_is_refused_in_a_line_by_one_rank(tmp_path: Path) -> None:
    box = sessions.prepare(tmp_path / "box", data=BURGERS)
    sessions.prepare(box)
    together(part, 1, box, {}, 1)
    jobs = [
        {"model": {"name": "latent", "dim": 32, "depth": 2, "heads": 4, "patch": 4}},
        {"optim": {"name": "muon"}},
        {"data": BURGERS},
    ]
    first, second = together(refusals, 2, box, jobs)
    assert [reported_elsewhere for _, reported_elsewhere in first + second] == [False] * 3 + [True] * 3
    (model, _), (optimizer, _), (task, _) = first
    assert task == "train.data: the tasks are burgers, but step-000001 is a checkpoint of advection"
    assert model == "step-000001 is a checkpoint of another model: heads is 2 there, and 4 here"
    assert optimizer.startswith(
        "step-000001 belongs to another model or optimiser: the checkpoint has no optimizer.core.blocks.0."
    )


@pytest.mark.parametrize(
    ("section", "key", "told"),
    [
        ("config", "model", "state.json of step-000001 has no config.model"),
        (None, "step", "step-000001/state.json belongs to step 7"),
    ],
)
def test_a_record_that_lacks_something_is_refused_in_a_line(
    tmp_path: Path, section: str | None, key: str, told: str
) -> None:
    box = sessions.prepare(tmp_path / "box")
    together(part, 1, box, {}, 1)
    checkpoint = box / layout.CHECKPOINTS / "step-000001"
    record = json.loads((checkpoint / "state.json").read_text())
    if section is None:
        record[key] = 7
    else:
        del record[section][key]
    with_file(checkpoint, "state.json", json.dumps(record).encode())
    [[(said, _)]] = together(refusals, 1, box, [{}])
    assert said.endswith(told)


SETTINGS = {"data": {**SMALL["data"], "validation": 4}, "evaluate_every": 5}
OPTIONS = list(product((None, 0.9), ("off", "full")))
"""ema, activation checkpointing."""


def losses(
    ranks: Ranks, boxes: list[Path], strategy: str, looks: list[bool]
) -> list[tuple[list[float], list[float]]]:
    """In each box: of two steps after a save, and of the same two in a session that continues from it."""
    found = []
    for box, (ema, recompute), look in zip(boxes, OPTIONS * 2, looks, strict=True):
        settings: dict[str, Any] = {**SETTINGS, "strategy": strategy, "activation_checkpointing": recompute}
        settings |= {} if ema is None else {"ema": ema}
        session = sessions.begin(ranks, box, settings)
        sessions.learn(session, 0, 2)
        if look:
            Validation(session).evaluate(session, lambda: None, lambda: False)
        session.save(2, None, durable=True)
        undisturbed = [loss for loss, _ in sessions.learn(session, 2, 4)]
        session.loader.close()
        again = sessions.begin(ranks, box, settings)
        assert again.start == 2
        found.append((undisturbed, [loss for loss, _ in sessions.learn(again, 2, 4)]))
        again.loader.close()
    return found


@pytest.mark.parametrize(("strategy", "ranks"), [("single", 1), ("ddp", 2), ("fsdp2", 2)])
@pytest.mark.slow
def test_a_training_continues_as_if_nobody_had_looked(tmp_path: Path, strategy: str, ranks: int) -> None:
    first = sessions.prepare(tmp_path / "0", **SETTINGS)
    boxes = [first, *(copytree(first, tmp_path / str(number)) for number in range(1, 2 * len(OPTIONS)))]
    looks = [number < len(OPTIONS) for number in range(len(boxes))]
    for of_rank in together(losses, ranks, boxes, strategy, looks):
        for number, (undisturbed, continued) in enumerate(of_rank):
            assert continued == undisturbed, (*OPTIONS[number % len(OPTIONS)], looks[number])
            assert continued == pytest.approx(of_rank[-1][1], abs=1e-6)
