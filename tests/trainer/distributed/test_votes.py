"""The control votes of several ranks: they stop together, and name the one that the others wait for."""

from __future__ import annotations

import contextlib
import io
import time

import pytest
import torch

from tests.trainer.conftest import together
from vastrun.trainer.distributed.clock import StepClock
from vastrun.trainer.distributed.group import Ranks, StopVote

pytestmark = pytest.mark.torch


@pytest.mark.slow
def test_the_rank_that_others_wait_for_is_named_though_all_come_to_the_vote_at_once() -> None:
    said, nothing = together(train_with_a_slow_second, 2)
    assert said.startswith("rank 1 is slow: the others wait ")
    assert nothing == ""


def train_with_a_slow_second(ranks: Ranks) -> str:
    """What is printed on this rank, in steps that begin together and end together."""
    clock = StepClock(ranks.device)
    vote, step = StopVote(ranks, 0, clock), 0
    with contextlib.redirect_stdout(io.StringIO()) as said:
        while not vote.passes(step, asked=bool(said.getvalue())):
            clock.begin()
            time.sleep(0.02 + 0.02 * ranks.rank.rank)
            clock.meet()
            ranks.mean(torch.ones(()))
            clock.end()
            step += 1
    return said.getvalue()
