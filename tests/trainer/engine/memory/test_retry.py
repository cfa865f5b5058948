"""Retry: a step that was too much for a rank is done again by all, and the curve shows nothing of it."""

import gc
import random
from pathlib import Path
from typing import Any

import pytest

from tests.trainer import sessions
from tests.trainer.conftest import together
from tests.trainer.engine.memory.shortage import Shortage
from vastrun.contract.heartbeat import Heartbeat
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.engine.memory import train_step_with_oom_retry
from vastrun.trainer.engine.session import Session

pytestmark = pytest.mark.torch

BATCH, STEPS = 12, 4
ROOM = 2
LESS = {1: 1, 2: 1, 3: 2}
"""The micro-batch that fits then, by the number of ranks: half of a share, half of that, and so on."""
RETRY = {"batch": BATCH, "out_of_memory": "retry"}

Points = list[tuple[float, float]]


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sessions.prepare(tmp_path_factory.mktemp("retry") / "box")


def learn(session: Session, first: int, last: int) -> tuple[Session, Points]:
    """As the loop does it."""
    heart = Heartbeat(session.ranks.rank.box / f"beat-{session.ranks.rank.rank}")
    points = []
    for step in range(first, last):
        session, losses = train_step_with_oom_retry(session, step, heart)
        loss, norm = session.ranks.mean_of(*losses)
        points.append((loss, norm))
    return session, points


def undisturbed(ranks: Ranks, box: Path, at: int) -> Points:
    """Told to compute less from that step on."""
    session, points = learn(sessions.begin(ranks, box, RETRY), 0, at)
    return points + learn(session.with_micro_batch(LESS[ranks.rank.world_size]), at, STEPS)[1]


def trials(ranks: Ranks, box: Path, count: int, checkpointing: str) -> list[tuple[int, int, Points, Points]]:
    """By trial: this rank's failures, the last micro-batch, the curve, and the one that it had to be."""
    gc.freeze()
    answers, settings = [], {**RETRY, "activation_checkpointing": checkpointing}
    expected = {at: undisturbed(ranks, box, at) for at in (0, 2)}
    for trial in range(count):
        draw = random.Random(trial)
        at, unlucky = draw.choice((0, 2)), draw.randrange(ranks.rank.world_size)
        session, points = learn(sessions.begin(ranks, box, settings), 0, at)
        lot = random.Random(1000 * trial + ranks.rank.rank)
        # Another rank may be short as well, of less.
        room = ROOM if ranks.rank.rank == unlucky else lot.choice((ROOM, BATCH))
        shortage = Shortage(session, room=room, lot=lot)
        session, rest = learn(session, at, STEPS)
        answers.append((shortage.failures, session.plan.micro_batch, points + rest, expected[at]))
    return answers


@pytest.mark.parametrize(
    ("ranks", "count", "checkpointing"), [(1, 2, "off"), (1, 8, "selective"), (2, 8, "off"), (3, 8, "off")]
)
@pytest.mark.slow
def test_a_step_that_was_too_much_anywhere_is_done_again_on_the_curve_of_smaller_micro_batches(
    ranks: int, count: int, checkpointing: str, box: Path
) -> None:
    answers = together(trials, ranks, box, count, checkpointing)
    for of_ranks in zip(*answers, strict=True):
        assert any(failures for failures, *_ in of_ranks)
        for _, micro_batch, points, expected in of_ranks:
            assert (micro_batch, points) == (LESS[ranks], expected)


def beside_ddp(ranks: Ranks, box: Path) -> tuple[Points, Points]:
    settings: dict[str, Any] = {"batch": BATCH, "strategy": "ddp"}
    bare = learn(sessions.begin(ranks, box, {**settings, "out_of_memory": "retry"}), 0, STEPS)[1]
    return bare, learn(sessions.begin(ranks, box, settings), 0, STEPS)[1]


def test_gradients_that_are_sent_after_the_passes_are_those_of_ddp(box: Path) -> None:
    for bare, ddp in together(beside_ddp, 2, box):
        assert bare == ddp
