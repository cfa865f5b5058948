"""Stragglers: named when they nearly always are the last, and when it matters."""

from __future__ import annotations

import random

from vastrun.trainer.distributed.group import Stragglers


def test_a_rank_that_is_nearly_always_last_is_named_once() -> None:
    stragglers = Stragglers()
    said = [
        stragglers.see([0.01, 0.01, 0.04 if vote % 10 else 0.01, 0.012], step_s=0.05) for vote in range(300)
    ]
    told = [text for text in said if text]
    assert len(told) == 1
    assert told[0].startswith("rank 2 is slow: the others wait 25 ms a step for it")


def test_ranks_that_are_last_by_turns_or_by_nothing_are_not() -> None:
    stragglers, rng = Stragglers(), random.Random(0)
    for _ in range(500):
        assert stragglers.see([rng.uniform(0.01, 0.04) for _ in range(2)], step_s=0.05) is None
        assert stragglers.see([0.04], step_s=0.05) is None
    stragglers = Stragglers()
    assert not any(stragglers.see([0.0400, 0.0405], step_s=0.05) for _ in range(500))


def test_a_rank_that_recovers_and_slows_down_again_is_named_again() -> None:
    stragglers = Stragglers()
    slow, fast = [0.04, 0.01], [0.01, 0.01]
    votes = [slow] * 200 + [fast] * 200 + [slow] * 200
    assert sum(stragglers.see(vote, step_s=0.05) is not None for vote in votes) == 2
