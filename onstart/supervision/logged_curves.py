"""Logged curves: copies the metrics that a user's program logs to TensorBoard or W&B to `run/metrics.jsonl`.

For programs that do not call `beat` with metrics: once the program writes to that file itself, nothing more
is added. A thread of the supervisor reads while the program runs. Files that a process has open are found
anywhere; others in the program's folder and its outputs, since TensorBoard's writer opens its file only for a
moment. Standard library only.
"""

from __future__ import annotations

import json
import os
import re
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISREG
from typing import Any

from vastrun.contract import layout
from vastrun.contract.job import working_folder
from vastrun.contract.reports import common_loss_name
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
POLL_S = 2.0
SEARCH_S = 4.0
"""Minimum seconds between two searches of the program's folders."""
_PAUSE = 100
"""Minimum pause between two searches, as a multiple of the duration of a search."""
_READ_S = 0.5
"""Maximum seconds that one poll reads."""
_LAST_READ_S = 5.0
"""Maximum seconds that the final poll reads: the machine costs money meanwhile."""
MAX_NAMES = 200
MAX_NAME = 200
"""Maximum characters of one name."""
MAX_BYTES = 32 << 20
"""Maximum bytes of metrics that are added; a launcher accepts 64 MiB."""
_NAMES_IN_LINE = 50
_UNEXPECTED = (ArithmeticError, LookupError, MemoryError, RecursionError, ValueError, struct.error)
"""Errors that no file should cause."""
_RESERVED = frozenset({"", "step", "at"})
_NO_TEXT = "\ufffd"
"""Character that replaces bytes that are not UTF-8."""


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


@dataclass(kw_only=True)
class LoggedCurves:
    """The curves of one supervised program."""

    box: Path
    say: Callable[[str], None]
    is_on: bool
    """False: nothing is read, as for the onboard trainer, or where rank 0 is on another node."""
    _files: list[CurveFile] = field(default_factory=list)
    _size: int = 0
    """Bytes of the metrics file after the last line added here: a larger file means that the program writes
    it."""
    _left: int = MAX_BYTES
    _search_at: float = 0.0
    """Time of the next search; monotonic clock."""

    def __post_init__(self) -> None:
        self._search, self._merge = CurveSearch(self.box), CurveMerge()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read while the program runs, and once more when it has ended."""
        if not self.is_on:
            yield
            return
        self.begin()
        stopping = threading.Event()
        thread = threading.Thread(target=self._watch, args=(stopping,), name="curves", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()
        self.poll(is_last=True)

    def begin(self) -> None:
        """Forget the files of an earlier start: its steps may be repeated."""
        self._search.begin()
        self._files, self._merge, self._size = [], CurveMerge(), size_of(self.box / layout.METRICS)

    def _watch(self, stopping: threading.Event) -> None:
        while not stopping.wait(POLL_S):
            self.poll()

    def poll(self, *, is_last: bool = False) -> None:
        """Search for new files, and append the additions of all files to the metrics."""
        if not self.is_on:
            return
        now = time.monotonic()
        deadline = now + (_LAST_READ_S if is_last else _READ_S)
        try:
            new = list(self._search.open_files())
            if is_last or now >= self._search_at:
                new += self._search.all_files()
                ended = time.monotonic()
                self._search_at = ended + max(SEARCH_S, _PAUSE * (ended - now))
            for file in new:
                self._files.append(file)
                self.say(f"curves are read from {self._shown(file.path)}")
            self._append_lines(deadline)
        except OSError as error:  # a full disk
            self._disable(f"curves cannot be added: {error}")
        except _UNEXPECTED as error:  # a curve must not end a training
            self._disable(f"curves cannot be read: {error!r}")

    def _append_lines(self, deadline: float) -> None:
        """Append the additions of all files to the metrics, until the deadline (monotonic clock)."""
        for file in self._files:
            was_broken = file.is_broken
            self._merge.add(file, deadline)
            if file.is_broken and not was_broken:
                self.say(
                    f"curves: {self._shown(file.path)} has a part that cannot be read; the rest is skipped"
                )
        content = "".join(f"{json.dumps(line)}\n" for line in self._merge.take()).encode()
        if not content:
            return
        if size_of(self.box / layout.METRICS) != self._size:
            self._disable("curves: the program writes metrics itself; logged curves are no longer added")
            return
        if len(content) > self._left:
            content = content[: content.rfind(b"\n", 0, self._left) + 1]
            self._disable(f"curves: more than {MAX_BYTES >> 20} MiB; further values are skipped")
        with (self.box / layout.METRICS).open("ab", buffering=0) as metrics:
            metrics.write(content)
        self._size += len(content)
        self._left -= len(content)

    def _disable(self, why: str) -> None:
        self.is_on = False
        self.say(why)

    def _shown(self, path: Path) -> str:
        return str(path).removeprefix(f"{self.box}/").encode("unicode_escape").decode()


@dataclass
class CurveMerge:
    """Merges the points of several files into lines of metrics with rising steps for each name.

    If two files have the same name, the first value of a step counts: two ranks or loggers log the same.
    """

    _last: dict[str, int] = field(default_factory=dict)
    _owner: dict[str, str] = field(default_factory=dict)
    """Folder of the files from which each tag came first: a run in TensorBoard's terms."""
    _without_step: dict[tuple[str, str], int] = field(default_factory=dict)
    """Number of values with step 0 so far, by file and tag: the program logs no steps."""
    _alias: dict[str, str] = field(default_factory=dict)
    _lines: dict[int, dict[str, float | None]] = field(default_factory=dict)

    def add(self, file: CurveFile, deadline: float) -> None:
        """Read the additions of the file."""
        for step, tag, value in file.points(deadline):
            name = self._name(file, tag)
            if name is None:
                continue
            if step == 0:
                key = (str(file.path), name)
                step = self._without_step.get(key, 0)
                self._without_step[key] = step + 1
            self._put(step, name, value)
            common = common_loss_name(name)
            # The exact name comes first; among several aliases, the first one.
            if common is not None and self._alias.setdefault(common, name) == name:
                self._put(step, common, value)

    def take(self) -> list[dict[str, Any]]:
        """Return and clear the pending lines, sorted by step."""
        lines, self._lines = self._lines, {}
        found: list[dict[str, Any]] = []
        for step, values in sorted(lines.items()):
            items = list(values.items())
            for start in range(0, len(items), _NAMES_IN_LINE):
                found.append({"step": step, **dict(items[start : start + _NAMES_IN_LINE])})
        return found

    def _put(self, step: int, name: str, value: float | None) -> None:
        if step > self._last.get(name, -1) and (name in self._last or len(self._last) < MAX_NAMES):
            self._last[name] = step
            self._lines.setdefault(step, {})[name] = value

    def _name(self, file: CurveFile, tag: str) -> str | None:
        """Return the displayed name of a tag of the file; None: it is not shown."""
        if tag in _RESERVED or len(tag) > MAX_NAME or not tag.isprintable() or _NO_TEXT in tag:
            return None
        if tag in ("loss", "validation_loss"):
            self._alias[tag] = tag
        folder = str(file.path.parent) if file.has_sub_runs else ""
        if tag not in self._owner and len(self._owner) >= MAX_NAMES:
            return None
        owner = self._owner.setdefault(tag, folder)
        if not owner or not folder or owner == folder:
            return tag
        name = f"{file.path.parent.name}/{tag}"
        return name if len(name) <= MAX_NAME and name.isprintable() else None
