"""Training set: reads samples of a task's training set for its evaluation, without symmetry or noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vastrun.trainer.data import Task
from vastrun.trainer.data.conditions import SeenConditions, digest_of, rows_to_compare
from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.sampling.windows import WindowSpace, draw_indices

_READ_BATCH = 64


def read_frames(task: Task, rows: NDArray[np.int64], frames: int) -> Windows:
    """Read the first `frames` frames, at least two, of training samples, by number."""
    train = task.train
    space = WindowSpace(
        trajectories=len(train),
        frames=train.frames,
        grid=tuple(train.grid),
        channels=train.channels,
        unroll=1,
    )
    drawn = draw_indices(0, 0, batch=len(rows), noise=0.0, space=space)
    return task.batch(0, replace(drawn, trajectory=rows, frames=np.tile(np.arange(frames), (len(rows), 1))))


def count_seen_conditions(task: Task, ranks: Ranks, beat: Callable[[], None]) -> SeenConditions:
    """Count the test samples whose condition is in the training set. Every rank reads a share of that set."""
    train, test, rank = task.train, task.test, ranks.rank
    rows = np.array(rows_to_compare(len(train), train.channels * math.prod(train.grid)))
    own = [digest_of(condition) for condition in test.fields[:, 0].cpu().numpy()]
    known: set[bytes] = set()
    # Equal shares, for an equal number of beats; a row that is read twice changes nothing.
    share: NDArray[np.int64] = np.resize(
        rows[rank.rank :: rank.world_size], math.ceil(len(rows) / rank.world_size)
    )
    for first in range(0, len(share), _READ_BATCH):
        beat()
        windows = read_frames(task, share[first : first + _READ_BATCH], 2)
        known.update(digest_of(condition) for condition in windows.fields[:, 0].cpu().numpy())
    seen: Tensor = ranks.all_reduce_sum(torch.tensor([float(digest in known) for digest in own]).double())
    return SeenConditions(test=len(own), seen=int((seen > 0).sum()), compared=len(rows), train=len(train))
