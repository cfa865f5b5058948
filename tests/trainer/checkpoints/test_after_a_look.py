"""A checkpoint that is saved after a look at the samples kept back, whatever strategy and options train."""

from itertools import product
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from tests.trainer import sessions
from tests.trainer.conftest import SMALL, together
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.evaluation.validation import Validation

pytestmark = pytest.mark.torch

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
