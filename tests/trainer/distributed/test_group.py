"""The ranks together: no other device than the one asked for, and votes that all ranks see alike."""

from pathlib import Path

import pytest
import torch

from tests.trainer.conftest import together
from vastrun.contract.job import Job
from vastrun.contract.program import ProgramSpec
from vastrun.trainer.distributed.group import Ranks, StopVote, join
from vastrun.trainer.distributed.rank import Rank
from vastrun.trainer.errors import DeviceError


def test_a_gpu_that_is_not_there_is_an_error_and_never_the_cpu(tmp_path: Path) -> None:
    rank = Rank(rank=99, local_rank=99, world_size=100, box=tmp_path)
    program = ProgramSpec(kind="train")
    job = Job(run_id="calm-heron-3f1a", ranks=1, gpus=100, program=program, stall_s=60, start_s=60)
    with pytest.raises(DeviceError, match="GPU 99 is needed, but torch"):
        join(rank, job)
    assert not torch.distributed.is_initialized()


def test_a_request_to_stop_passes_in_the_first_vote(alone: Ranks) -> None:
    assert StopVote(alone, 500).passes(501, asked=True)


def test_nobody_stops_when_nobody_was_asked_to(alone: Ranks) -> None:
    vote = StopVote(alone, 0)
    assert not any(vote.passes(step, asked=False) for step in range(1, 2000))


def test_quick_steps_are_not_held_up_by_a_vote_each(alone: Ranks) -> None:
    vote = StopVote(alone, 0)
    vote.passes(1, asked=False)
    assert not vote.passes(2, asked=True)
    assert any(vote.passes(step, asked=True) for step in range(3, 5_000_000))


@pytest.mark.torch
def test_all_ranks_stop_after_the_same_step_when_one_is_asked() -> None:
    assert together(stopped_after, 2) == [7, 7]


def stopped_after(ranks: Ranks) -> int:
    vote, step = StopVote(ranks, 6), 6
    while not vote.passes(step, asked=ranks.rank.rank == 1):
        step += 1
    return step
