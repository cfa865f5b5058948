"""The stall rule: who stands still for too long, and who is waited for."""

from __future__ import annotations

import pytest

from trainer.supervision.stall import Limits, Standing, comparable, stalled, stuck

LIMITS = Limits(stall_s=10, start_s=60)
COLLECTIVE = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
BACKWARD = "/venv/lib/python3.11/site-packages/torch/autograd/graph.py"


def at(
    rank: int = 0, step: int = 5, stage: str = "forward", still_s: float = 0.0, frame: str = "train.py"
) -> Standing:
    return Standing(rank=rank, step=step, stage=stage, still_s=still_s, frames=(frame,))


@pytest.mark.parametrize(
    ("stage", "limit_s"),
    [("forward", 10), ("step", 10), ("done", 10), ("start", 60), ("", 60), ("eval", 60), ("checkpoint", 60)],
)
def test_each_stage_has_its_limit(stage: str, limit_s: float) -> None:
    assert not stalled([at(stage=stage, still_s=limit_s - 0.1)], LIMITS)
    assert stalled([at(stage=stage, still_s=limit_s + 0.1)], LIMITS)


def test_one_rank_that_stands_still_is_enough() -> None:
    assert stalled([at(rank=0, still_s=1), at(rank=1, still_s=11)], LIMITS)


def test_the_rank_furthest_behind_is_the_stuck_one() -> None:
    assert stuck([at(rank=0, step=6, stage="data"), at(rank=1, step=5, stage="optimizer")]).rank == 1


def test_within_a_step_the_earlier_stage_is_behind() -> None:
    assert stuck([at(rank=0, stage="backward"), at(rank=1, stage="data")]).rank == 1


@pytest.mark.parametrize("waiting", [COLLECTIVE, BACKWARD])
def test_of_ranks_at_the_same_place_the_one_that_waits_for_nobody_is_stuck(waiting: str) -> None:
    assert stuck([at(rank=0, frame=waiting), at(rank=1, frame="code/model.py")]).rank == 1


def test_a_stage_of_the_users_own_is_compared_like_a_step() -> None:
    assert stuck([at(rank=0, stage="validate"), at(rank=1, stage="data")]).rank == 1


def test_ranks_that_never_beat_are_not_judged_when_others_do() -> None:
    told = comparable([at(rank=0, still_s=2), at(rank=1, stage="", still_s=99)], silent_s=50)
    assert [standing.rank for standing in told] == [0]


def test_without_heartbeats_a_line_in_any_log_moves_all_ranks() -> None:
    silent = [at(rank=0, stage="", still_s=99), at(rank=1, stage="", still_s=99)]
    assert not stalled(comparable(silent, silent_s=3), LIMITS)
    assert stalled(comparable(silent, silent_s=11), LIMITS)


def test_without_heartbeats_and_before_the_first_line_the_start_limit_holds() -> None:
    assert not stalled(comparable([at(stage="", still_s=59)], silent_s=None), LIMITS)
    assert stalled(comparable([at(stage="", still_s=61)], silent_s=None), LIMITS)


def test_without_heartbeats_the_rank_that_waits_for_nobody_is_stuck() -> None:
    silent = [at(rank=0, stage="", frame=COLLECTIVE), at(rank=1, stage="", frame="code/model.py")]
    assert stuck(comparable(silent, silent_s=99)).rank == 1
