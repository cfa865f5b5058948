"""Token files: each holds the tokens of some trajectories, and is memory-mapped by its readers. No torch."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vastrun.contract.errors import DataError
from vastrun.contract.records import write_json
from vastrun.trainer.sampling.windows import BatchIndices

Tokens: TypeAlias = NDArray[np.float32]

_ABOUT = "about.json"
_MAX_FILE_BYTES = 64 << 20
"""Largest file, in bytes."""
_MIN_FILES = 16
"""Smallest number of files per task, so that several ranks share the work."""


@dataclass(frozen=True, kw_only=True)
class TokensShape:
    """Shape of all tokens of a task."""

    trajectories: int
    frames: int
    """Frames per trajectory that can be a first frame: all but the last."""
    tokens: int
    dim: int

    @property
    def trajectory_shape(self) -> tuple[int, int, int]:
        return self.frames, self.tokens, self.dim

    @property
    def trajectories_per_file(self) -> int:
        fit = _MAX_FILE_BYTES // (4 * prod(self.trajectory_shape))
        return max(1, min(fit, -(-self.trajectories // _MIN_FILES)))


class LatentFiles:
    """Token files of one task, in their own folder. Each process maps the files itself."""

    def __init__(self, folder: Path, shape: TokensShape, about: dict[str, Any]) -> None:
        """`about`: everything the tokens depend on, as JSON. Files of any other value count as missing."""
        self.folder = folder
        self._shape = shape
        self._about = json.loads(json.dumps(about))
        """The value as it is read back from JSON."""
        self._mapped: dict[int, Tokens] = {}

    def missing(self) -> list[int]:
        """Return the numbers of the files that are missing or damaged."""
        count = -(-self._shape.trajectories // self._shape.trajectories_per_file)
        current = self._is_current()
        return [number for number in range(count) if not (current and self._is_intact(number))]

    @property
    def bytes(self) -> int:
        """Bytes of all tokens."""
        return 4 * self._shape.trajectories * prod(self._shape.trajectory_shape)

    def missing_bytes(self) -> int:
        return sum(4 * prod(self._shape_of(number)) for number in self.missing())

    def trajectory_range(self, number: int) -> range:
        """Return the trajectories whose tokens a file holds."""
        first = number * self._shape.trajectories_per_file
        return range(first, min(first + self._shape.trajectories_per_file, self._shape.trajectories))

    def prepare_folder(self) -> None:
        """Write the folder's description; remove partial and outdated files."""
        unusable = [*self.folder.glob(".*.part")]
        if not self._is_current():
            unusable += self.folder.glob("*.npy")
        for path in unusable:
            path.unlink()
        write_json(self.folder / _ABOUT, self._about)

    def write(self, number: int, tokens: Tokens) -> None:
        """Write a file atomically and sync it to the disk."""
        path = self._path(number)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        with part.open("wb") as file:
            np.save(file, tokens)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)

    def read(self, indices: BatchIndices) -> Tokens:
        """Read the tokens of the first frame of each window: (B, S, D). Raises DataError."""
        numbers, places = np.divmod(indices.trajectory, self._shape.trajectories_per_file)
        rows = zip(numbers.tolist(), places.tolist(), indices.frames[:, 0].tolist(), strict=True)
        tokens: Tokens = np.empty((len(indices.trajectory), self._shape.tokens, self._shape.dim), np.float32)
        for row, (number, place, frame) in enumerate(rows):
            tokens[row] = self._map(number)[place, frame]
        return tokens

    def _map(self, number: int) -> Tokens:
        if number not in self._mapped:
            if not self._is_intact(number):
                raise DataError(f"{self._path(number)}: expected tokens of shape {self._shape_of(number)}")
            # A plain array: indexing it is faster than a memmap.
            self._mapped[number] = np.load(self._path(number), mmap_mode="r").view(np.ndarray)
        return self._mapped[number]

    def _is_current(self) -> bool:
        try:
            return bool(json.loads((self.folder / _ABOUT).read_text(encoding="utf-8")) == self._about)
        except (OSError, ValueError):
            return False

    def _is_intact(self, number: int) -> bool:
        try:
            tokens = np.load(self._path(number), mmap_mode="r")
        except (OSError, ValueError):
            return False
        found = tokens.shape, tokens.dtype, self._path(number).stat().st_size
        return found == (self._shape_of(number), np.dtype(np.float32), tokens.offset + tokens.nbytes)

    def _shape_of(self, number: int) -> tuple[int, ...]:
        return len(self.trajectory_range(number)), *self._shape.trajectory_shape

    def _path(self, number: int) -> Path:
        return self.folder / f"tokens-{number:05d}.npy"

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_mapped": {}}
