"""Folder watch: how the files of a user's program change, and whether a moment lies between two of its saves.

Times, open files and earlier saves decide. No name, format or framework counts, except that a SQLite database
and its journal belong together. Linux, standard library only.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path, PurePosixPath
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import BinaryIO, Literal, NamedTuple

from vastrun.contract import layout
from vastrun.contract.checkpoint_folder import checksum_file
from vastrun.contract.job import Job
from vastrun.onstart.supervision.processes import FileId, OpenFiles
from vastrun.onstart.supervision.program_files import FilesBefore, printable, walk

_GRAIN_S = 0.05
"""The times of a file system have a grain of up to 10 ms: a younger change may not show in a second scan."""
_LOG_BYTES_PER_S = 1e6
"""A file that grows faster is being saved; one that grows slower is a log."""
_COPIED_IN_STOP_BYTES = 16 << 20
"""Bytes of databases that are copied while the program stands still, in about 20 ms."""
_SPARE_BYTES = 64 << 20
"""Bytes that a copy leaves free on the disk."""
_END_BYTES = 256
_MAX_SERIES = 40
"""Maximum series of names whose saves are compared; a program with more of them has no such sets."""
_MAX_PATH_BYTES, _MAX_FOLDERS = 1024, 64
"""Limits of a path that is downloaded: `launcher/gate/caps.py`."""
_DATABASE = b"SQLite format 3\0"
COMPANIONS = ("-wal", "-journal", "-shm")

Way = Literal["link", "copy", "mapped", "log", "database", "skip"]
"""How a file is taken."""
CHANGE_ALWAYS: tuple[Way, ...] = ("log", "database", "skip")
"""Files that may change while a snapshot is taken: a kill leaves them readable, too."""


class FileState(NamedTuple):
    """What changes when a file or link is written or replaced; of a folder its mode. There may be 50,000."""

    inode: FileId
    mode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, stat: os.stat_result, former: FileState | None = None) -> FileState:
        """Return the state; an equal `former` one, to save memory."""
        state = cls((stat.st_dev, stat.st_ino), stat.st_mode, stat.st_size, stat.st_mtime_ns)
        if S_ISDIR(stat.st_mode):
            state = cls((0, 0), stat.st_mode, 0, 0)
        return former if former is not None and former == state else state

    @property
    def is_file(self) -> bool:
        return S_ISREG(self.mode)


class Growth(NamedTuple):
    """How a file became longer: its size when it was first seen, and at the last change."""

    inode: FileId
    since: float
    at: float
    first: int
    size: int
    ends: bytes
    """Its first and last bytes: a list or a table that is rewritten grows, too, and these change."""
    is_continued: bool = False
    """True: it had been closed before it became longer."""


Files = Mapping[str, FileState]
"""What the program wrote, by its path relative to the box."""


def series_of(name: str) -> str:
    """Return the name with # for each number in it."""
    return re.sub(r"\d+", "#", name)


@dataclass(frozen=True, kw_only=True)
class Look:
    """The files at one moment, how each is taken, and why this is no moment between two saves."""

    files: Files
    ways: Mapping[str, Way] = field(default_factory=dict)
    why: str = ""
    """Empty: it is one, as far as can be seen."""
    written: frozenset[str] = frozenset()
    """Names that a process has open for writing, but for logs and databases."""


@dataclass(kw_only=True)
class SaveOrder:
    """Learns which series of names are saved together: each gets its next file after the other."""

    _counts: Counter[str] = field(default_factory=Counter)
    _range: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)

    def note(self, saved: Iterable[str]) -> None:
        """Note the series of the files that were saved since the last call."""
        self._counts.update(set(saved))
        if len(self._counts) <= _MAX_SERIES:
            for one, other in combinations(sorted(self._counts), 2):
                ahead = self._counts[one] - self._counts[other]
                low, high = self._range.get((one, other), (0, 0))
                self._range[one, other] = (min(low, ahead), max(high, ahead))

    def is_known(self) -> bool:
        """Tell whether a third save was seen: then the pauses within one and between two are known."""
        return len(self._counts) <= _MAX_SERIES and max(self._counts.values(), default=0) >= 3

    def missing(self) -> str:
        """Return the series whose next file is expected, since its partner has a new one; else nothing."""
        for (one, other), (low, high) in self._range.items():
            ahead = self._counts[one] - self._counts[other]
            # Twice together: a single time may be chance.
            if high - low == 1 and ahead and min(self._counts[one], self._counts[other]) >= 2:
                return other if ahead > 0 else one
        return ""


@dataclass(kw_only=True)
class FolderWatch:
    """Looks at the program's folder and the one for outputs, again and again."""

    box: Path
    job: Job
    every_s: float
    report: Callable[[str], None]
    """Say a text once."""
    in_place: set[str] = field(default_factory=set)
    """Series of names that the program overwrites in place: they are copied."""
    survivors: set[str] = field(default_factory=set)
    """Logs and databases."""
    last: Look = field(default_factory=lambda: Look(files={}))
    unread: set[str] = field(default_factory=set)
    """Restored files that the program has not read yet, as far as their times show that."""
    read: list[str] = field(default_factory=list)
    """Restored files that it has read, before a snapshot read them itself."""
    _first: Files = field(default_factory=dict)
    """Before the program started."""
    _replaced: set[str] = field(default_factory=set)
    """Series of names that the program replaces by a rename: they are linked."""
    _closed: dict[str, FileId] = field(default_factory=dict)
    """Inode of each name that was seen closed."""
    _open_since: dict[str, float] = field(default_factory=dict)
    _growth: dict[str, Growth] = field(default_factory=dict)
    _still_s: deque[float] = field(default_factory=lambda: deque(maxlen=40))
    """How long the program had changed nothing, at the last looks."""
    _order: SaveOrder = field(default_factory=SaveOrder)
    _noted: Files = field(default_factory=dict)
    _sums: dict[str, str] = field(default_factory=dict)
    """Checksums of mapped files at the last look: their times do not show every write."""

    def __post_init__(self) -> None:
        self._before = FilesBefore.read(self.box)

    def begin(self) -> None:
        """Record the files before the program starts."""
        self.last = Look(files=self.scan())
        self._first = self._noted = self.last.files

    def look(self, known: Files, now: float) -> Look:
        """Look at what differs from `known`. `now`: monotonic seconds."""
        files = self.scan()
        changed = [name for name, state in files.items() if known.get(name) != state and state.is_file]
        ways, written = self._classify(files, changed, now) if changed else ({}, frozenset[str]())
        self.survivors |= {name for name, way in ways.items() if way in CHANGE_ALWAYS}
        # Closed files that did not change between two looks: each is one save of its series.
        last = self.last.files
        moving = written | self.survivors
        saved = {
            name: state
            for name, state in files.items()
            if self._noted.get(name) != state == last.get(name) and name not in moving
        }
        if saved:
            self._order.note(series_of(name) for name in saved if files[name].is_file)
            self._noted = {**self._noted, **saved}
        why = self._why_not(files, ways, written, changed)
        self.last = Look(files=files, ways=ways, why=why, written=written)
        return self.last

    def late(self, look: Look) -> Look:
        """Return the look at which a snapshot is taken although it is none between two saves.

        What is open and was never seen closed is left out, as if it had not been begun. Other open files are
        rewritten: then the reason stays that there is none.
        """
        rewritten = next((name for name in look.written if name in self._closed), "")
        why = f"{rewritten} is being written" if rewritten else ""
        return Look(files=look.files, ways={**look.ways, **dict.fromkeys(look.written, "skip")}, why=why)

    def changed_since(self, then: Files, files: Files) -> set[str]:
        """Return the files that changed at the end since a look; a program can also start its logs over."""
        return {
            name
            for name, state in files.items()
            if state.is_file
            and name not in self.survivors
            and then.get(name) != state
            and not self._grows(name, state, time.monotonic())
        }

    def was_renamed(self, name: str) -> bool:
        """Tell whether it or its folder was renamed, or its time set, after the last write: it is whole."""
        paths = [self.box / name, *(self.box / folder for folder in PurePosixPath(name).parents)]
        with suppress(OSError):
            found = [*map(Path.stat, paths)]
            # A link of a snapshot changes the same time.
            moved = [at for at in found if S_ISDIR(at.st_mode) or at.st_nlink == 1]
            return any(at.st_ctime_ns > max(at.st_mtime_ns, found[0].st_mtime_ns) for at in moved)
        return False

    def was_in_save(self) -> bool:
        """Tell whether the program was in a save at the last look, as far as its earlier saves show."""
        is_unsure = not self._order.is_known() or "mapped" in self.last.ways.values()
        return bool(self.last.why and (is_unsure or self._order.missing()))

    def scan(self) -> dict[str, FileState]:
        """Return what the program wrote in its folder and the one for outputs, and all folders and links."""
        found, before = dict[str, FileState](), self._before
        for place in (layout.CODE, layout.OUTPUTS):
            search = walk(self.box / place, self.box, self.job)
            for name, stat in search.entries():
                path = sys.intern(f"{place}/{name}")
                former = self.last.files.get(path)
                state = FileState.of(stat, former)
                if path in self.unread and self._first[path].mtime_ns == stat.st_mtime_ns != stat.st_atime_ns:
                    self.unread.remove(path)
                    self.read.append(path)
                # Without a record nobody knows what of the code is the program's.
                is_own = place != layout.CODE or (before is not None and before.has_changed(name, stat))
                if not (is_own if state.is_file else S_ISLNK(state.mode) or S_ISDIR(state.mode)):
                    continue
                parts = path.split("/")
                is_short = len(os.fsencode(path)) < _MAX_PATH_BYTES and len(parts) < _MAX_FOLDERS
                if former is not None or (is_short and all(map(layout.should_download, parts))):
                    found[path] = state
                else:
                    self.report(f"snapshot: {printable(path)} has a name that is not downloaded")
            if search.is_cut:
                self.report(f"snapshot: {place} has too many files; only a part is stored")
        return found

    def is_rewritten(self, name: str, state: FileState) -> bool:
        """Tell whether the program is likely to overwrite the file: a link would change with it."""
        group = series_of(name)
        is_rewritten = group in self.in_place or (group == name and name not in self._replaced)
        return is_rewritten and shutil.disk_usage(self.box).free >= state.size + _SPARE_BYTES

    def _classify(
        self, files: Files, changed: Iterable[str], now: float
    ) -> tuple[dict[str, Way], frozenset[str]]:
        """Return how each changed file is taken, and those that are being written."""
        opened = OpenFiles.of_descendants(self.box)
        mapped = [name for name, state in files.items() if state.inode in opened.mapped]
        ways: dict[str, Way] = {}
        written = set()
        for name in dict.fromkeys((*changed, *mapped)):
            state = files[name]
            if state.inode not in opened.written:
                self._open_since.pop(name, None)
            if state.inode in opened.mapped:
                ways[name] = "mapped"
            elif main := self._database_of(name, files, opened.written | opened.appended):
                ways |= {main + end: "database" for end in ("", *COMPANIONS[:2]) if main + end in files}
                ways[main + COMPANIONS[2]] = "skip"  # memory that its processes share; made again
            elif state.inode in opened.appended or self._grows(name, state, now):
                ways[name] = "log"
            elif state.inode not in opened.written:
                if self._closed.setdefault(name, state.inode) != state.inode:
                    self._replaced.add(series_of(name))
                    self._closed[name] = state.inode
                ways[name] = "copy" if self.is_rewritten(name, state) else "link"
            elif now - self._open_since.setdefault(name, now) < 2 * self.every_s:
                written.add(name)
            else:  # open all the time: no save takes so long
                ways[name] = "copy"
        return ways, frozenset(written)

    def _database_of(self, name: str, files: Files, opened: frozenset[FileId]) -> str:
        """Return the name of the database in use to which the file belongs; empty: it is of none."""
        main = next((name.removesuffix(end) for end in COMPANIONS if name.endswith(end)), name)
        is_known = main in files
        if is_known and (files[main].inode in opened or any(main + end in files for end in COMPANIONS)):
            with suppress(OSError), (self.box / main).open("rb") as file:
                return main if file.read(len(_DATABASE)) == _DATABASE else ""
        return ""

    def _grows(self, name: str, state: FileState, now: float) -> bool:
        """Tell whether it is a log: it became only longer, after it was closed, or for a long time."""
        seen = self._growth.get(name)
        before = self.last.files.get(name)
        if seen is None and before is not None and before.size != state.size:
            seen = Growth(before.inode, now, now, before.size, before.size, b"")
        if seen is None:  # most files do not change again: their ends are not read
            return False
        if (seen.inode, seen.size) != (state.inode, state.size):
            with suppress(OSError), (self.box / name).open("rb") as file:
                is_longer = seen.inode == state.inode and seen.size < state.size
                grows = is_longer and bool(seen.ends) and _ends(file, seen.size) == seen.ends
                first, since = (seen.first, seen.since) if grows else (state.size, now)
                seen = Growth(state.inode, since, now, first, state.size, _ends(file, state.size))
                seen = seen._replace(is_continued=grows and self._closed.get(name) == state.inode)
            self._growth[name] = seen
        took_s = seen.at - seen.since
        is_slow = took_s >= self.every_s and seen.size - seen.first < _LOG_BYTES_PER_S * took_s
        return seen.is_continued or is_slow

    def _why_not(
        self, files: Files, ways: Mapping[str, Way], written: frozenset[str], changed: Iterable[str]
    ) -> str:
        """Return why this is no moment between two saves; empty: it is one."""
        last = self.last.files
        rest = {
            name: state.mtime_ns
            for name, state in files.items()
            if state.is_file and ways.get(name) not in CHANGE_ALWAYS
        }
        newest = max(rest, key=rest.__getitem__, default="")
        still_s = max(0.0, time.time() - rest[newest] / 1e9) if newest else self.every_s
        if newest and self._first.get(newest) != files[newest]:  # until its first save it does not pause
            self._still_s.append(still_s)
        if written:
            return f"{min(written)} is open for writing"
        for name in changed:
            if name in rest and last.get(name) != files[name]:
                return f"{name} changed since the last look"
        # Half of the longest pause of this program lies between its saves, not within one.
        longest_s = max(self._still_s, default=self.every_s) if self._order.is_known() else self.every_s
        calm_s = max(_GRAIN_S, min(self.every_s / 6, longest_s / 2))
        if still_s < calm_s:
            return f"{newest} changed {still_s:.1f} s ago, and {calm_s:.1f} s without a change are waited for"
        before, self._sums = self._sums, {}
        for name in (name for name, way in ways.items() if way == "mapped"):
            self._sums[name] = checksum_file(self.box / name).sha256
            if before.get(name) != self._sums[name]:
                return f"{name} is mapped and changes"
        if missing := self._order.missing():
            return f"{missing} is saved together with files that are newer"
        held = sum(files[name].size for name, way in ways.items() if way == "database")
        return "a large database is in use" if held > _COPIED_IN_STOP_BYTES else ""


def _ends(file: BinaryIO, size: int) -> bytes:
    """Return the first and the last of that many bytes of a file."""
    count = min(size, _END_BYTES)
    return os.pread(file.fileno(), count, 0) + os.pread(file.fileno(), count, size - count)
