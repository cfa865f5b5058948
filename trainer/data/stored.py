"""Stored trajectories: read from their files window by window, so that they need not fit in memory.

host    the files are mapped: one copy in the machine's memory serves all ranks, as far as there is room
disk    each process that reads opens the files itself, whatever their chunks or compression
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainer.config import Keep
from trainer.data import pdebench
from trainer.data.trajectories import Trajectories, Windows, moments_of
from trainer.sampling.windows import Picks

_CHUNK = 256


@dataclass(frozen=True, kw_only=True)
class Part:
    """The first `count` trajectories of one file."""

    path: Path
    count: int
    conditions: tuple[float, ...]


class StoredTrajectories:
    """All parts one after the other."""

    def __init__(self, parts: Sequence[Part], *, frames: int, points: int, keep: Keep) -> None:
        self.keep: Keep = "disk" if keep == "disk" else "host"
        self.frames = frames
        self.points = points
        self.conditions = torch.tensor([part.conditions for part in parts for _ in range(part.count)])
        self._parts = parts
        self._firsts = np.cumsum([0, *(part.count for part in parts)])
        self._open: list[pdebench.Fields] = []

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def moments(self) -> tuple[float, float]:
        """The mean and the standard deviation of all values. Raises DataError when one is not finite."""
        return moments_of(self._chunks())

    def read(self, picks: Picks) -> Tensor:
        """(B, U + 1, X): the windows, in memory."""
        fields = torch.empty(*picks.frames.shape, self.points)
        length, stored = picks.frames.shape[1], self._stored()
        part = np.searchsorted(self._firsts, picks.trajectory, side="right") - 1
        row = picks.trajectory - self._firsts[part]
        # As plain numbers: indexing is quicker with them.
        places = zip(*(each.tolist() for each in (part, row, picks.frames[:, 0], picks.shift)), strict=True)
        for window, (p, r, first, shift) in zip(fields.numpy(), places, strict=True):
            block = stored[p][r, first : first + length]
            window[:, shift:] = block[:, : self.points - shift]
            window[:, :shift] = block[:, self.points - shift :]
        return fields

    def _chunks(self) -> Iterator[Tensor]:
        for part, fields in zip(self._parts, self._stored(), strict=True):
            for first in range(0, part.count, _CHUNK):
                chunk = fields[first : min(first + _CHUNK, part.count)]
                pdebench.check_finite(part.path, chunk, first)
                yield torch.tensor(chunk)

    def _stored(self) -> list[pdebench.Fields]:
        """The fields of each part; this process has the files open from now on."""
        if not self._open:
            self._open = [pdebench.view(part.path, mapped=self.keep == "host") for part in self._parts]
        return self._open

    def __getstate__(self) -> dict[str, Any]:
        """For another process: it opens the files itself, and no tensor goes there through `/dev/shm`."""
        return vars(self) | {"_open": [], "conditions": self.conditions.numpy()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.conditions = torch.from_numpy(self.conditions)


class StoredTask:
    """A task whose trajectories stay in memory or on disk; only those to test on go to the device."""

    def __init__(self, train: StoredTrajectories, test: Trajectories) -> None:
        self.train = train
        self.test = test

    def place(self, device: torch.device) -> None:
        self.test = self.test.to(device)

    def batch(self, step: int, picks: Picks) -> Windows:  # noqa: ARG002 - for tasks that extend this one
        """The windows, in memory."""
        return Windows(
            fields=self.train.read(picks),
            noise=torch.from_numpy(picks.noise),
            conditions=self.train.conditions[picks.trajectory],
        )

    def __getstate__(self) -> dict[str, Any]:
        """For a worker, which reads to train only."""
        return {name: value for name, value in vars(self).items() if name != "test"}
