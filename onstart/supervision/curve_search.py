"""Curve search: finds the files of TensorBoard and W&B that the program writes. Standard library only.

Files that a process has open are found anywhere; others in the program's folder and its outputs, since
TensorBoard's writer opens its file only for a moment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISREG

from vastrun.contract import layout
from vastrun.contract.job import working_folder
from vastrun.onstart.optional_files import size_of
from vastrun.onstart.supervision.curve_file import CurveFile
from vastrun.onstart.supervision.curve_formats import TensorBoardFile, WandbFile
from vastrun.onstart.supervision.processes import descendants, environ_of, open_files
from vastrun.onstart.supervision.program_files import FolderWalk
from vastrun.onstart.supervision.rank_process import read_processes

MAX_FILES = 64
"""Maximum files of one start that are read."""
_CURVE_FILE = re.compile(r"events\.out\.tfevents\.\d+\..+|run-[\w.-]+\.wandb")
_PID = re.compile(r"\.(\d+)\.\d+(\.v2)?$")
"""The process id in the name of an event file."""
_BOX_FOLDERS = frozenset(
    Path(name).parts[0] for name in (layout.RUN, layout.PACKAGES, layout.DATA, layout.SLOTS)
)
"""Folders of the box in which no program logs; the outputs are searched separately."""


@dataclass
class CurveSearch:
    """Finds files that rank 0 has written since its start."""

    box: Path
    _seen: dict[Path, int] = field(default_factory=dict)
    """Size of each file before the start; 0 for new files."""
    _of_other_ranks: set[Path] = field(default_factory=set)
    _found: set[Path] = field(default_factory=set)

    def begin(self) -> None:
        """Record the sizes of existing files before the program starts: only additions count."""
        self._found, self._of_other_ranks = set(), set()
        self._seen = {path: size_of(path) for path in self.files_below_folders()}

    def open_files(self) -> Iterator[CurveFile]:
        """Yield new files among those that a process has open."""
        for pid in descendants(os.getpid()):
            opened = (path for _, path in open_files(pid) if _CURVE_FILE.fullmatch(path.rpartition("/")[2]))
            for path in map(Path, opened):
                if path in self._found or path in self._of_other_ranks:
                    continue
                if _is_of_rank_0(pid):
                    yield from self._new(path)
                else:
                    self._of_other_ranks.add(path)

    def all_files(self) -> Iterator[CurveFile]:
        """Yield new files in the program's folder and in its outputs."""
        ranks = {process.pid: process.rank for process in read_processes(self.box)}
        living = frozenset(descendants(os.getpid()))
        for path in self.files_below_folders():
            if path in self._of_other_ranks:
                continue
            if size_of(path) > self._seen.get(path, 0) and _is_written_by_rank_0(path, ranks, living):
                yield from self._new(path)

    def _new(self, path: Path) -> Iterator[CurveFile]:
        if path in self._found or len(self._found) >= MAX_FILES:
            return
        self._found.add(path)
        kind = WandbFile if path.name.startswith("run-") else TensorBoardFile
        yield kind(path, offset=self._seen.get(path, 0))

    def files_below_folders(self) -> list[Path]:
        """Return the curve files in the program's folder and in its outputs."""
        root, outputs = working_folder(self.box).resolve(), (self.box / layout.OUTPUTS).resolve()
        skipped = _BOX_FOLDERS if root == self.box.resolve() else ()
        return sorted({*_below(root, skipped), *_below(outputs)})


def wandb_files(box: Path) -> list[Path]:
    """Return the files of W&B's runs in the program's folder, in its outputs and in W&B's own folder."""
    search, wandb = CurveSearch(box), (box / layout.WANDB_FILES).resolve()
    found = {*search.files_below_folders(), *_below(wandb)}
    return sorted(path for path in found if path.name.startswith("run-"))


def _below(root: Path, skipped: Collection[str] = ()) -> Iterator[Path]:
    """Yield the curve files below a folder, without those in its folders of the `skipped` names."""
    search = FolderWalk(root=root, caches=[f"{root}/{name}" for name in skipped], left=20_000)
    for name, stat in search.files():
        if S_ISREG(stat.st_mode) and _CURVE_FILE.fullmatch(name.rpartition("/")[2]):
            yield root / name


def _is_of_rank_0(pid: int) -> bool:
    """Tell by its environment whether a process belongs to rank 0; without RANK it does."""
    return environ_of(pid).get("RANK", "0") == "0"


def _is_written_by_rank_0(path: Path, ranks: Mapping[int, int], living: frozenset[int]) -> bool:
    """Tell by the process id in its name; a file without one counts as rank 0's."""
    named = _PID.search(path.name)
    if named is None or len(named[1]) > 9:
        return True
    pid = int(named[1])
    return ranks.get(pid, 0) == 0 and (pid not in living or _is_of_rank_0(pid))
