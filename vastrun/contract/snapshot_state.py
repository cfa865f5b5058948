"""Snapshot state: what a snapshot of a user's program says of itself. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from vastrun.contract.records import MaxLength, Range, read_json, read_small

FILES = "files"
"""Folder of a snapshot with the files, by their paths relative to the box."""
STATE = "state.json"
_MAX_ENTRIES = 100_000
_Name = Annotated[str, MaxLength(4096)]


@dataclass(frozen=True, kw_only=True)
class SnapshotState:
    """The content of `state.json`; a checkpoint that a program stored itself has other keys."""

    is_calm: bool = True
    """True: taken between two saves, as far as that could be seen."""
    step: Annotated[int, Range(0, 2**53)] = 0
    """The program's step when it saved last."""
    resume: _Name = ""
    """Path of the newest checkpoint by `checkpoints.files`, relative to the box."""
    files: Annotated[Mapping[_Name, tuple[Annotated[int, Range(0, 2**53)], ...]], MaxLength(_MAX_ENTRIES)] = (
        field(default_factory=dict)
    )
    """Mode, and time of the last write in microseconds, of each file."""
    links: Annotated[Mapping[_Name, _Name], MaxLength(_MAX_ENTRIES)] = field(default_factory=dict)
    folders: Annotated[tuple[_Name, ...], MaxLength(_MAX_ENTRIES)] = ()
    """Empty folders."""

    @classmethod
    def of(cls, checkpoint: Path) -> SnapshotState:
        """Read the state of a snapshot. One that cannot be read has no files of a program."""
        try:
            state = read_json(cls, read_small(checkpoint / STATE, 32 << 20))
        except (OSError, ValueError):
            return cls()
        assert isinstance(state, cls)
        return state
