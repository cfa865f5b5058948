"""Training set: reads samples of a task's training set for fits and floors, without symmetry or noise.

The condition of a sample is what it is solved from: its initial condition, or its coefficient.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vastrun.trainer.data import Source, Task
from vastrun.trainer.data.draws import digest_of
from vastrun.trainer.data.samples import ranges
from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.sampling.windows import WindowSpace, draw_indices

MAX_PARAMETERS = 16
"""Largest number of parameters to fit and score separately; more conditions belong to single samples."""


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


def parameters_of(train: Source) -> Tensor:
    """Return the different conditions (G, C) of a training set; only their mean when they are too many."""
    conditions = train.conditions
    parameters = conditions.unique(dim=0) if conditions.shape[1] else conditions[:1]
    return parameters if len(parameters) <= MAX_PARAMETERS else conditions.mean(dim=0, keepdim=True)


def read_groups(
    task: Task, parameters: Tensor, *, values: int, beat: Callable[[], None]
) -> Iterator[Iterator[Tensor]]:
    """Yield the trajectories (B, T, K, *X) nearest to each of the parameters (G, C), evenly spaced.

    At most `values` are read in all.
    """
    train = task.train
    size = train.frames * train.channels * math.prod(train.grid)
    max_samples = max(1, values // (len(parameters) * size))
    nearest = torch.cdist(train.conditions.cpu(), parameters.cpu()).argmin(dim=1).numpy()
    for number in range(len(parameters)):
        rows = np.flatnonzero(nearest == number)
        yield _read(task, rows[spaced(len(rows), max_samples)], max(1, (1 << 21) // size), beat)


def _read(task: Task, rows: NDArray[np.int64], batch: int, beat: Callable[[], None]) -> Iterator[Tensor]:
    for first in range(0, len(rows), batch):
        beat()
        yield read_frames(task, rows[first : first + batch], task.train.frames).fields


def spaced(count: int, max_samples: int) -> NDArray[np.int64]:
    """Return the numbers of `count` samples, or of `max_samples` that are evenly spaced."""
    return np.linspace(0, count - 1, max(1, min(count, max_samples))).round().astype(int)


@dataclass(frozen=True, kw_only=True)
class SeenConditions:
    """Test conditions that are in the training set, at whatever parameter."""

    test: int
    """Number of test samples."""
    seen: int
    """Number of test samples whose condition is in the training set."""
    compared: int
    """Number of training samples that were compared."""
    train: int
    """Number of training samples."""

    @property
    def lines(self) -> list[str]:
        """Return a line for the user; none when no test condition was seen."""
        if not self.seen:
            return []
        part = "" if self.compared == self.train else f" (of which {self.compared} of {self.train} were read)"
        return [
            f"{self.seen} of {self.test} test samples have an initial condition or coefficient of the "
            f"training set{part}: their scores are those of known samples"
        ]


def rows_to_compare(samples: int, values: int, max_bytes: int = 1 << 30) -> list[int]:
    """Return the numbers of the training samples to compare, evenly spaced where all would be too large.

    Each condition has `values` values of 4 bytes.
    """
    return spaced(samples, max_bytes // (4 * values)).tolist()


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
    for chunk in ranges(len(share), 64):
        beat()
        windows = read_frames(task, share[chunk.start : chunk.stop], 2)
        known.update(digest_of(condition) for condition in windows.fields[:, 0].cpu().numpy())
    seen: Tensor = ranks.all_reduce_sum(torch.tensor([float(digest in known) for digest in own]).double())
    return SeenConditions(test=len(own), seen=int((seen > 0).sum()), compared=len(rows), train=len(train))
