"""Shares: check that the ranks together read the windows of a step, and no two ranks read the same."""

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
"""A window: its trajectory, its first frame, its image."""


@dataclass(frozen=True, kw_only=True)
class ReadShare:
    """The windows that one rank read in one step."""

    windows: tuple[Window, ...]
    content: str
    """Digest of the values."""


def share_of(indices: BatchIndices, read: Windows) -> ReadShare:
    """Return the windows that this rank read, and a digest of their values."""
    content = hashlib.sha256(read.fields.cpu().contiguous().numpy().tobytes())
    return ReadShare(windows=windows_of(indices), content=content.hexdigest())


def windows_of(indices: BatchIndices) -> tuple[Window, ...]:
    """Return the windows of the indices."""
    numbers = (indices.trajectory, indices.frames[:, 0], indices.image)
    return tuple(zip(*(each.tolist() for each in numbers), strict=True))


def check_shares(step: int, shares: Sequence[ReadShare], batch: Sequence[Window]) -> None:
    """Check that the shares, by rank, make up the batch of all ranks. Raises DataError."""
    pairs = list(combinations(enumerate(shares), 2))
    read = Counter(window for share in shares for window in share.windows)
    missing, extra = Counter(batch) - read, read - Counter(batch)
    if missing or extra:
        # Two ranks that read the same windows are the usual mistake: name them instead of a count.
        for (a, one), (b, other) in pairs:
            if one.windows == other.windows:
                raise DataError(
                    f"ranks {a} and {b} read the same windows in step {step}: each must read different ones"
                )
        raise DataError(
            f"the ranks skipped {missing.total()} windows of step {step} and read {extra.total()} others"
        )
    # `windows` is the request, `content` the response: a user's task may ignore the request.
    for (a, one), (b, other) in pairs:
        if one.content == other.content and _trajectories(one).isdisjoint(_trajectories(other)):
            raise DataError(
                f"ranks {a} and {b} hold the same values in step {step}, but different trajectories "
                "were requested: check that the task's `batch` reads the trajectories of `indices`"
            )


def _trajectories(share: ReadShare) -> set[int]:
    return {trajectory for trajectory, _, _ in share.windows}
