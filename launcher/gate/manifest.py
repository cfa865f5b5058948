"""Manifest of a box: parse_manifest() returns its valid files and the reasons for rejecting the others."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from vastrun.contract import layout
from vastrun.contract.checkpoint_folder import STATE
from vastrun.contract.outcome import Bytes, FileChecksum
from vastrun.contract.records import MaxLength, Pattern, Range, RecordError, parse_json, read_as, read_json
from vastrun.launcher.core import LeftOutFile, LeftOutFiles
from vastrun.launcher.core.left_out import NONE_LEFT_OUT
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.caps import ExchangeBudget
from vastrun.launcher.gate.text import one_line

INCOMING, PULLING, OWNER = ".incoming", ".pulling", ".vastrun"
"""Names reserved in the folder of outputs: for partial downloads of the run's launcher and of a user's
command, and for the run that owns the folder."""

_HEAD = re.compile(rb'"at": (\d{1,12}(?:\.\d{1,9})?), "is_calm": (true|false)(?:, "older": (\d{1,6}),)?')
_HEAD_BYTES = 1 << 12
_FOLDERS = frozenset(
    (layout.RUN, layout.CHECKPOINTS, layout.OUTPUTS, layout.EVALUATION, layout.PROFILES, layout.CODE)
)
_FILES = (layout.LOG, *caps.SMALL_FILES)
"""Paths at which a box always has a folder, and paths at which it always has a file."""


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The files that a manifest names."""

    files: tuple[FileChecksum, ...] = ()
    rejected: tuple[str, ...] = ()
    """Reasons for rejected entries, each with its path."""
    left_out: LeftOutFiles = NONE_LEFT_OUT
    """Files that the box excludes from download."""


@dataclass(frozen=True, kw_only=True)
class _AllLeftOut:
    """The part of a manifest about files that are not downloaded."""

    left_out: Annotated[tuple[LeftOutFile, ...], MaxLength(100)] = ()
    left_out_count: Annotated[int, Range(0, 10**9)] = 0
    left_out_bytes: Bytes = 0


@dataclass(frozen=True, kw_only=True)
class _Latest:
    """Content of `latest.json`; the step is in the path."""

    path: Annotated[str, Pattern(r"step-\d{6,18}")]


def parse_latest_checkpoint(content: bytes) -> str | None:
    """Parse `latest.json`: the folder of the newest checkpoint; None when it names none."""
    try:
        latest: _Latest = read_json(_Latest, content)
    except RecordError:
        return None
    return latest.path


@dataclass(frozen=True, kw_only=True)
class SnapshotHead:
    """Description of a snapshot at the beginning of `state.json`."""

    at: float | None = None
    """Epoch seconds by the box's clock."""
    is_calm: bool = True
    """False: it was not taken between two saves."""
    older: int = 0
    """Files at the end of its manifest that only older checkpoints need."""

    @classmethod
    def read(cls, checkpoint: Path) -> SnapshotHead:
        """Read it; of a checkpoint that says nothing, the defaults."""
        with suppress(OSError), (checkpoint / STATE).open("rb") as file:
            if found := _HEAD.search(file.read(_HEAD_BYTES)):
                return cls(at=float(found[1]), is_calm=found[2] == b"true", older=int(found[3] or 0))
        return cls()


def parse_manifest(
    manifest: bytes, disk_bytes: float = math.inf, budget: ExchangeBudget | None = None
) -> Listing:
    """Parse the files of a manifest; none for an empty file. `disk_bytes`: size of the machine's disk.

    A budget is checked every few files.
    """
    if not manifest:
        return Listing()
    try:
        parsed = parse_json(manifest)
        entries, left_out = _entries(parsed), _left_out_in(parsed)
    except RecordError as error:
        return Listing(rejected=(f"{layout.MANIFEST}: {error}",))
    found: dict[str, FileChecksum] = {}
    contents = set[tuple[str, int]]()
    rejected = []
    for number, entry in enumerate(entries):
        if budget is not None and number % 500 == 0:
            budget.check()
        try:
            file = _file_of(entry)
            if file.path in found:
                raise RecordError(f"{file.path!r} is listed twice")
            # Files larger than the machine's disk are a lie, and would fill the local disk. Snapshots have
            # links to the same content.
            disk_bytes -= 0 if (file.sha256, file.size) in contents else file.size
            contents.add((file.sha256, file.size))
            if disk_bytes < 0:
                raise RecordError(f"{file.path!r} is larger than the machine's disk")
        except RecordError as error:
            rejected.append(str(error))
        else:
            found[file.path] = file
    for path, above in _paths_below_files(found):
        del found[path]
        rejected.append(f"{path!r} is listed below {above!r}, which is a file")
    return Listing(files=tuple(found.values()), rejected=tuple(rejected), left_out=left_out)


def _paths_below_files(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each path below another listed path, with that path.

    No disk holds `a` and `a/b` when `a` is a file. Paths are sorted, since a set of all their folders would
    be much larger than the list.
    """
    above = ""
    for path in sorted(f"{path}/" for path in paths):
        if above and path.startswith(above):
            yield path[:-1], above[:-1]
        else:
            above = path


def parse_left_out(manifest: bytes) -> LeftOutFiles:
    """Parse the files that a manifest excludes from download; none for an invalid manifest."""
    try:
        return _left_out_in(parse_json(manifest))
    except RecordError:
        return NONE_LEFT_OUT


def _left_out_in(parsed: Any) -> LeftOutFiles:
    record: _AllLeftOut = read_as(_AllLeftOut, parsed)
    files = tuple(replace(one, path=one_line(one.path), why=one_line(one.why)) for one in record.left_out)
    return LeftOutFiles(
        files=files,
        count=max(record.left_out_count, len(files)),
        bytes=max(record.left_out_bytes, sum(file.size for file in files)),
    )


def _entries(manifest: Any) -> Sequence[Any]:
    entries = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(entries, list):
        raise RecordError("expected a list", "files")
    if len(entries) > caps.FILES:
        raise RecordError(f"more than {caps.FILES} files")
    return entries


def _file_of(entry: Any) -> FileChecksum:
    """Validate an entry and normalize its path: `a//b/./c` becomes `a/b/c`."""
    file: FileChecksum = read_as(FileChecksum, entry)
    if file.path.count("/") > caps.PATH_FOLDERS:
        raise RecordError(f"a path of more than {caps.PATH_FOLDERS} folders: {file.path[:60]!r}...")
    path = PurePosixPath(file.path)
    if path.is_absolute() or not path.parts or not all(map(_is_name, path.parts)):
        raise RecordError(f"not a path within the box: {file.path!r}")
    if len(str(path).encode("utf-8", "surrogateescape")) > caps.PATH_BYTES:
        raise RecordError(f"a path of more than {caps.PATH_BYTES} bytes: {file.path[:60]!r}...")
    if str(path) in _FOLDERS:
        raise RecordError(f"a folder, not a file: {file.path!r}")
    if any(str(path).startswith(f"{one}/") for one in _FILES):
        raise RecordError(f"below a path that is a file: {file.path!r}")
    if file.size > caps.SMALL_FILES.get(str(path), file.size):
        raise RecordError(f"{path}: larger than {caps.SMALL_FILES[str(path)]} bytes")
    return FileChecksum(path=str(path), size=file.size, sha256=file.sha256)


def _is_name(part: str) -> bool:
    return (
        part != ".."
        and layout.should_download(part)
        and part.casefold() not in (INCOMING, PULLING, OWNER)
        and len(part.encode("utf-8", "surrogateescape")) <= caps.NAME_BYTES
    )
