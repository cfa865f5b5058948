"""Shares: the ranks together read the windows of a step, and no two ranks read the same."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from vastrun.contract.errors import DataError
from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.sampling.windows import BatchIndices

Window = tuple[int, int, int]
"""What names a window: its trajectory, its first frame, its image."""


@dataclass(frozen=True, kw_only=True)
class ReadShare:
    """What one rank read of one step."""

    windows: tuple[Window, ...]
    content: str
    """A digest of the values."""


def share_of(indices: BatchIndices, read: Windows) -> ReadShare:
    """Return what this rank read of a step: the names of its windows, and a digest of their values."""
    content = hashlib.sha256(read.fields.cpu().contiguous().numpy().tobytes())
    return ReadShare(windows=windows_of(indices), content=content.hexdigest())


def windows_of(indices: BatchIndices) -> tuple[Window, ...]:
    """Return the windows that the indices name."""
    numbers = (indices.trajectory, indices.frames[:, 0], indices.image)
    return tuple(zip(*(each.tolist() for each in numbers), strict=True))


def check_shares(step: int, shares: Sequence[ReadShare], batch: Sequence[Window]) -> None:
    """Check that the shares, by rank, make up the batch of all ranks. Raises DataError."""
    pairs = list(combinations(enumerate(shares), 2))
    read = Counter(window for share in shares for window in share.windows)
    missing, extra = Counter(batch) - read, read - Counter(batch)
    if missing or extra:
        # Two ranks that read alike are the usual mistake, and name it better than any count.
        for (a, one), (b, other) in pairs:
            if one.windows == other.windows:
                raise DataError(
                    f"ranks {a} and {b} read the same windows in step {step}: each should read its own"
                )
        raise DataError(
            f"the ranks left out {missing.total()} windows of step {step} and read {extra.total()} others"
        )
    # `windows` is what was asked for, `content` what came: a task of the user's may ignore the question.
    for (a, one), (b, other) in pairs:
        if one.content == other.content and _trajectories(one).isdisjoint(_trajectories(other)):
            raise DataError(
                f"ranks {a} and {b} hold the same values in step {step}, although they were asked for other "
                "trajectories: does the task's `batch` read what `indices` names?"
            )


def _trajectories(share: ReadShare) -> set[int]:
    return {trajectory for trajectory, _, _ in share.windows}
