"""Ranks of a test: they meet, answer by rank, and one that fails is a failure with its reason."""

import os
import signal
import time

import pytest

from tests.trainer.conftest import together
from vastrun.trainer.distributed.group import Ranks

pytestmark = pytest.mark.torch


def fail(ranks: Ranks) -> None:
    if ranks.rank.rank == 1:
        raise ValueError("a fault of rank 1")
    ranks.wait_for_all()


def die(ranks: Ranks) -> None:
    if ranks.rank.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


def wait(ranks: Ranks) -> None:
    if ranks.rank.rank == 0:
        ranks.wait_for_all()


@pytest.mark.parametrize(
    ("function", "fault"), [(fail, "rank 1:(.|\n)*a fault of rank 1"), (die, "rank 1: died")]
)
def test_a_rank_that_fails_ends_all_and_says_why(function: object, fault: str) -> None:
    with pytest.raises(pytest.fail.Exception, match=fault):
        together(function, 2)  # type: ignore[arg-type]


def test_ranks_that_wait_for_ever_are_killed_at_the_deadline() -> None:
    with pytest.raises(AssertionError, match=r"ranks \[0(, 1)?\] were not done in time"):
        together(wait, 2, within_s=1.0)
