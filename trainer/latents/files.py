"""Files of tokens: each holds those of some trajectories, and is mapped by whoever reads it. No torch."""

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
_LARGEST = 64 << 20
"""Bytes of a file."""
_FEWEST = 16
"""Files of a set, so that several ranks have something to do."""


@dataclass(frozen=True, kw_only=True)
class TokensShape:
    """Of all tokens of a task."""

    trajectories: int
    frames: int
    """Of each trajectory, those that are ever given: all but the last."""
    tokens: int
    dim: int

    @property
    def of_trajectory(self) -> tuple[int, int, int]:
        return self.frames, self.tokens, self.dim

    @property
    def trajectories_a_file(self) -> int:
        fit = _LARGEST // (4 * prod(self.of_trajectory))
        return max(1, min(fit, -(-self.trajectories // _FEWEST)))


class LatentFiles:
    """The tokens of one task, in a folder of their own. Each process maps the files itself."""

    def __init__(self, folder: Path, shape: TokensShape, about: dict[str, Any]) -> None:
        """`about`: what the tokens follow from, a value of JSON. Files of anything else are missing."""
        self.folder = folder
        self._shape = shape
        self._about = json.loads(json.dumps(about))
        """As it is read again."""
        self._mapped: dict[int, Tokens] = {}

    def missing(self) -> list[int]:
        """Return the files, by number, that are not there as they should be."""
        count = -(-self._shape.trajectories // self._shape.trajectories_a_file)
        ours = self._is_ours()
        return [number for number in range(count) if not (ours and self._is_whole(number))]

    @property
    def bytes(self) -> int:
        """Of all tokens."""
        return 4 * self._shape.trajectories * prod(self._shape.of_trajectory)

    def missing_bytes(self) -> int:
        return sum(4 * prod(self._shape_of(number)) for number in self.missing())

    def trajectories_of(self, number: int) -> range:
        """Return whose tokens a file holds."""
        first = number * self._shape.trajectories_a_file
        return range(first, min(first + self._shape.trajectories_a_file, self._shape.trajectories))

    def begin(self) -> None:
        """Make the folder, which says what its tokens follow from; remove what cannot be used."""
        wrong = [*self.folder.glob(".*.part")]
        if not self._is_ours():
            wrong += self.folder.glob("*.npy")
        for path in wrong:
            path.unlink()
        write_json(self.folder / _ABOUT, self._about)

    def write(self, number: int, tokens: Tokens) -> None:
        """Write the file, whole and on the disk."""
        path = self._path(number)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        with part.open("wb") as file:
            np.save(file, tokens)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)

    def read(self, indices: BatchIndices) -> Tokens:
        """Read the tokens of the frames that the windows begin with: (B, S, D). Raises DataError."""
        numbers, places = np.divmod(indices.trajectory, self._shape.trajectories_a_file)
        rows = zip(numbers.tolist(), places.tolist(), indices.frames[:, 0].tolist(), strict=True)
        tokens: Tokens = np.empty((len(indices.trajectory), self._shape.tokens, self._shape.dim), np.float32)
        for row, (number, place, frame) in enumerate(rows):
            tokens[row] = self._map(number)[place, frame]
        return tokens

    def _map(self, number: int) -> Tokens:
        if number not in self._mapped:
            if not self._is_whole(number):
                raise DataError(f"{self._path(number)}: expected tokens of shape {self._shape_of(number)}")
            # As a plain array: indexing is quicker with that.
            self._mapped[number] = np.load(self._path(number), mmap_mode="r").view(np.ndarray)
        return self._mapped[number]

    def _is_ours(self) -> bool:
        try:
            return bool(json.loads((self.folder / _ABOUT).read_text(encoding="utf-8")) == self._about)
        except (OSError, ValueError):
            return False

    def _is_whole(self, number: int) -> bool:
        try:
            tokens = np.load(self._path(number), mmap_mode="r")
        except (OSError, ValueError):
            return False
        found = tokens.shape, tokens.dtype, self._path(number).stat().st_size
        return found == (self._shape_of(number), np.dtype(np.float32), tokens.offset + tokens.nbytes)

    def _shape_of(self, number: int) -> tuple[int, ...]:
        return len(self.trajectories_of(number)), *self._shape.of_trajectory

    def _path(self, number: int) -> Path:
        return self.folder / f"tokens-{number:05d}.npy"

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_mapped": {}}
