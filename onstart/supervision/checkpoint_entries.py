"""Checkpoint entries: find files and folders that match `checkpoints.files`, and detect complete ones.

Standard library only.
"""

from __future__ import annotations

import json
import os
import re
import struct
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import BinaryIO

from vastrun.contract import layout
from vastrun.onstart.supervision.processes import descendants

MAX_FILES = 20_000
"""Maximum files whose times one poll reads; the entries that changed last come first."""
MIN_QUIET_S = 5.0
MAX_QUIET_S = 120.0
"""Minimum and maximum seconds without a change until a folder counts as complete that has no completion
marker of its framework."""
_MAX_CHECKED = 1000
"""Maximum files of one entry whose format is checked."""
_MAX_HEADER = 100 << 20
_UNFINISHED = re.compile(r"\.(tmp|temp|part|partial|incomplete|lock)(\.\w+)?$", re.IGNORECASE)
_TEMPORARY = re.compile(r"\.|tmp[-_.]", re.IGNORECASE)
_SIDECAR_SUFFIXES = frozenset(
    (".txt", ".json", ".jsonl", ".yaml", ".yml", ".csv", ".log", ".md", ".html", ".png", ".py")
)
"""Suffixes of files next to checkpoints; they are no checkpoints unless the pattern names them."""
_SIDECAR_NAMES = frozenset(("latest", "latest_universal", "checkpoint"))
"""Files that name the newest checkpoint, of DeepSpeed and other frameworks."""
_ZIP = b"PK\x03\x04"

FileId = tuple[int, int]
"""Device and inode."""


@dataclass(frozen=True, kw_only=True)
class EntryFile:
    """A file of an entry, as one poll saw it."""

    name: str
    """Path relative to the program's folder."""
    source: Path
    """Path of its content; differs from `name` for a link within the program's folder."""
    size: int
    modified_ns: int
    id: FileId


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A file or folder that matches the pattern."""

    name: str
    """Path relative to the program's folder, with slashes."""
    is_folder: bool
    files: tuple[EntryFile, ...]
    was_renamed: bool
    """True when it was renamed, or its time was set, after the last write: its writer was done."""
    leads_out: bool
    """True when one of its files is a link out of the program's folder: a copy would be incomplete."""
    has_control_characters: bool = False
    """True when a file name has control characters: that file is not downloaded, a copy would be
    incomplete."""

    @property
    def modified_ns(self) -> int:
        return max(file.modified_ns for file in self.files)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def quiet_s(self) -> float:
        """Seconds without a change that it needs: twice as long as a folder's files took to write."""
        if not self.is_folder:
            return 0.0
        took_s = (self.modified_ns - min(file.modified_ns for file in self.files)) / 1e9
        return min(MAX_QUIET_S, max(MIN_QUIET_S, 2 * took_s))


@dataclass(frozen=True, kw_only=True)
class FoundEntries:
    entries: tuple[Entry, ...]
    outside: tuple[str, ...] = ()
    """Names that lead out of the program's folder; they are not followed."""
    unprintable: tuple[str, ...] = ()
    """Entries with control characters in a name, escaped here; they are not stored."""
    is_cut: bool = False
    """True when there were more files than one poll reads."""


def find_entries(root: Path, pattern: str, max_files: int = MAX_FILES) -> FoundEntries:
    """List the entries below `root`, the resolved folder of the program, the newest first."""
    matches, outside, is_cut = _matches(root, pattern, max_files)
    entries, unprintable, left = [], [], max_files
    for _, path in sorted(matches, reverse=True):
        entry = entry_at(path, root, left)
        if entry is None:
            continue
        left -= len(entry.files)
        if left < 0:
            is_cut = True
            break
        if entry.has_control_characters:
            unprintable.append(printable(entry.name))
        elif entry.leads_out:
            outside.append(entry.name)
        else:
            entries.append(entry)
    newest_first = sorted(entries, key=lambda entry: (entry.modified_ns, entry.name), reverse=True)
    outside = list(map(printable, outside))
    return FoundEntries(
        entries=tuple(newest_first), outside=tuple(outside), unprintable=tuple(unprintable), is_cut=is_cut
    )


def printable(name: str) -> str:
    """Return the name with its control characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in name)


def _matches(root: Path, pattern: str, limit: int) -> tuple[list[tuple[int, str]], list[str], bool]:
    """Return times and paths of possible entries, the names that lead out, and True when there were more.

    Paths are strings: ten thousand are checked every two seconds during the training.
    """
    found: list[tuple[int, str]] = []
    outside: list[str] = []
    leads_out: dict[str, bool] = {}
    for path in map(str, root.glob(pattern)):
        if len(found) >= limit:
            return found, outside, True
        parent, _, name = path.rpartition("/")
        if _TEMPORARY.match(name) or _UNFINISHED.search(name):
            continue
        with suppress(OSError):
            stat = os.lstat(path)
            if S_ISLNK(stat.st_mode) or (S_ISREG(stat.st_mode) and is_sidecar(name, pattern)):
                continue  # a link is a second name of something
            if parent not in leads_out:
                leads_out[parent] = not Path(parent).resolve().is_relative_to(root)
            if leads_out[parent]:
                outside.append(path[len(str(root)) + 1 :])
            else:
                found.append((stat.st_mtime_ns, path))
    return found, outside, False


def is_sidecar(name: str, pattern: str) -> bool:
    """Tell by its name whether a file next to checkpoints is no checkpoint."""
    suffix = PurePosixPath(name).suffix.lower()
    return name in _SIDECAR_NAMES or (suffix in _SIDECAR_SUFFIXES and not pattern.lower().endswith(suffix))


def entry_at(path: str, root: Path, limit: int = MAX_FILES) -> Entry | None:
    """Return the entry at `path`; None when it has no files, or is gone."""
    files: list[EntryFile] = []
    leads_out = has_control = False
    with suppress(OSError):
        top = Path(path).stat()
        is_folder, latest_ns = S_ISDIR(top.st_mode), top.st_mtime_ns
        for place in (
            (f"{at}/{name}" for at, _, names in os.walk(path) for name in names) if is_folder else (path,)
        ):
            has_control = has_control or layout.has_control_characters(place[len(str(root)) + 1 :])
            leads_out = leads_out or _leads_out(place, root)
            file = None if leads_out else _file_at(place, root)
            if file is not None:
                latest_ns = max(latest_ns, file.modified_ns)
                files.append(file)
            if len(files) > limit:
                break
        if files or leads_out or has_control:
            return Entry(
                name=path[len(str(root)) + 1 :],
                is_folder=is_folder,
                files=tuple(sorted(files, key=lambda file: file.name)),
                was_renamed=top.st_ctime_ns > latest_ns,
                leads_out=leads_out,
                has_control_characters=has_control,
            )
    return None


def _leads_out(path: str, root: Path) -> bool:
    return os.path.islink(path) and not os.path.realpath(path).startswith(f"{root}/")  # noqa: PTH114


def _file_at(path: str, root: Path) -> EntryFile | None:
    """Return the file; None if it is no regular file, or has a name that is not downloaded."""
    name = path[len(str(root)) + 1 :]
    stat, source = os.lstat(path), path
    if S_ISLNK(stat.st_mode):
        source = os.path.realpath(path)
        stat = Path(source).stat()
    if not S_ISREG(stat.st_mode) or not all(map(_should_download, name.split("/"))):
        return None
    return EntryFile(
        name=name,
        source=Path(source),
        size=stat.st_size,
        modified_ns=stat.st_mtime_ns,
        id=(stat.st_dev, stat.st_ino),
    )


_should_download = lru_cache(maxsize=100_000)(layout.should_download)


def open_for_writing(root: Path) -> frozenset[FileId]:
    """Return the files below `root` that a process of this run has open for writing."""
    inside = f"{root}/"
    return frozenset(
        found for pid in descendants(os.getpid()) for found in _open_files(Path(f"/proc/{pid}"), inside)
    )


def _open_files(process: Path, inside: str) -> Iterator[FileId]:
    with suppress(OSError):  # it has ended, or belongs to another user
        for number in os.listdir(process / "fd"):  # noqa: PTH208 (a name is all that is needed)
            with suppress(OSError):
                target = process / "fd" / number
                if os.readlink(target).startswith(inside) and _is_written(process / "fdinfo" / number):  # noqa: PTH115
                    stat = target.stat()
                    yield stat.st_dev, stat.st_ino


def _is_written(fdinfo: Path) -> bool:
    flags = next(line for line in fdinfo.read_text().splitlines() if line.startswith("flags:"))
    return int(flags.split()[1], 8) & os.O_ACCMODE in (os.O_WRONLY, os.O_RDWR)


def completeness(entry: Entry) -> bool | None:
    """Tell by its framework or format whether it is complete; None: unknown."""
    names = {PurePosixPath(file.name).relative_to(entry.name).as_posix() for file in entry.files}
    if any(_UNFINISHED.search(name) for name in names) or not entry.size:
        return False
    complete = [_is_complete(file) for file in entry.files[:_MAX_CHECKED]]
    if False in complete:
        return False
    return _framework_mark(names) if entry.is_folder else complete[0]


def _framework_mark(names: set[str]) -> bool | None:
    folders = {PurePosixPath(name).parent for name in names if name.endswith(".distcp")}
    if folders:  # torch.distributed.checkpoint renames `.metadata` into place last
        return all((folder / ".metadata").as_posix() in names for folder in folders)
    if not names.isdisjoint({"trainer_state.json", "training_args.bin"}):  # the Trainer of Hugging Face
        return "trainer_state.json" in names
    if "optimizer.bin" in names and not any(name.startswith("random_states_") for name in names):
        return False  # accelerate writes the random states last
    return None


def _is_complete(file: EntryFile) -> bool | None:
    """Tell whether a file of a known format is complete; None: its format does not show it."""
    with suppress(OSError), file.source.open("rb") as content:
        if file.name.endswith(".safetensors"):
            return _safetensors_size(content) == file.size
        if file.name.endswith("trainer_state.json"):
            return _is_json(content)
        if content.read(len(_ZIP)) == _ZIP:  # torch.save, Lightning, numpy: the directory is written last
            return zipfile.is_zipfile(content)
    return None


def _safetensors_size(content: BinaryIO) -> int | None:
    """Return the file size according to the header; None when it cannot be read."""
    try:
        (length,) = struct.unpack("<Q", content.read(8))
        header = json.loads(content.read(min(length, _MAX_HEADER)))
        ends = [value["data_offsets"][1] for key, value in header.items() if key != "__metadata__"]
        return 8 + int(length) + max(ends, default=0)
    except (struct.error, ValueError, LookupError, TypeError, AttributeError):
        return None


def _is_json(content: BinaryIO) -> bool:
    try:
        json.loads(content.read(_MAX_HEADER))
    except ValueError:
        return False
    return True
