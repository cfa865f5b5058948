"""The control votes of several ranks: they stop together."""

import pytest

from tests.trainer.conftest import together
from vastrun.trainer.distributed.group import Ranks, StopVote

pytestmark = pytest.mark.torch


def test_all_ranks_stop_after_the_same_step_when_one_is_asked() -> None:
    assert together(stopped_after, 2) == [7, 7]


def stopped_after(ranks: Ranks) -> int:
    vote, step = StopVote(ranks, 6), 6
    while not vote.passes(step, asked=ranks.rank.rank == 1):
        step += 1
    return step
