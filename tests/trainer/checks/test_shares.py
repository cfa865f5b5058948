"""Shares of a step: each rank reads its own part, and together they read the whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from vastrun.contract.errors import DataError
from vastrun.trainer.checks.shares import ReadShare, check_shares, share_of, windows_of
from vastrun.trainer.data.trajectories import Trajectories, TrajectoryTask
from vastrun.trainer.sampling.windows import BatchIndices, WindowSpace, draw_indices

SPACE = WindowSpace(trajectories=20, frames=9, grid=(16,), symmetry="shift", unroll=3)
WHOLE = draw_indices(1, 4, batch=8, noise=0.0, space=SPACE)


def task() -> TrajectoryTask:
    fields = torch.randn(20, 9, 1, 16, generator=torch.Generator().manual_seed(0))
    trajectories = Trajectories(fields=fields, conditions=torch.zeros(20, 2), symmetry="shift")
    return TrajectoryTask(trajectories, trajectories)


def shares(
    *, asked: list[BatchIndices] | None = None, read: list[BatchIndices] | None = None
) -> list[ReadShare]:
    """Those of two ranks, who were asked for some windows and read some."""
    asked = asked or [WHOLE.share(rank, 2) for rank in (0, 1)]
    return [share_of(a, task().batch(4, r)) for a, r in zip(asked, read or asked, strict=True)]


def test_ranks_that_share_the_batch_are_right() -> None:
    check_shares(4, shares(), windows_of(WHOLE))


def test_a_batch_that_happens_to_hold_a_window_twice_is_right() -> None:
    first = WHOLE.share(0, 2)
    check_shares(4, shares(asked=[first, first]), windows_of(first) * 2)


def test_ranks_that_read_the_same_are_named() -> None:
    first = WHOLE.share(0, 2)
    with pytest.raises(DataError, match="ranks 0 and 1 read the same windows in step 4"):
        check_shares(4, shares(asked=[first, first]), windows_of(WHOLE))


def test_a_task_that_reads_the_same_on_every_rank_whatever_it_is_asked_is_found_out() -> None:
    first = WHOLE.share(0, 2)
    with pytest.raises(DataError, match="ranks 0 and 1 hold the same values in step 4"):
        check_shares(4, shares(read=[first, first]), windows_of(WHOLE))


def test_windows_that_nobody_reads_are_counted() -> None:
    first, second = (WHOLE.share(rank, 2) for rank in (0, 1))
    other = replace(second, trajectory=(second.trajectory + 1) % 20)
    with pytest.raises(DataError, match="skipped 4 windows of step 4 and read 4 others"):
        check_shares(4, shares(asked=[first, other]), windows_of(WHOLE))
