"""Local data: the files of this computer that `data:` names, their checksums, and the packs in which they are
sent."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from vastrun.contract.data_files import DataReceipt, SentFile, contents_of
from vastrun.contract.records import write_json
from vastrun.launcher.bundle.checkout import MACOS_METADATA
from vastrun.launcher.bundle.credentials import holds_credentials
from vastrun.launcher.bundle.outgoing import OutgoingFile, outgoing_files, walk
from vastrun.launcher.core import UploadEstimate
from vastrun.launcher.core.errors import JobValueError, UsageError
from vastrun.launcher.core.job import DataFile, JobSpec
from vastrun.launcher.decisions.history import SpeedHistory

_MAX_FILES = 100_000
_MIN_PACK_BYTES, _MAX_PACK_BYTES, _PACKS = 4 << 20, 64 << 20, 64
"""A pack is one of about 64, within these sizes."""
_MAX_PIECES = 20_000

Stamp = tuple[int, int, int]
"""Size, time of the last change in ns, and number of a file: where they are the same, its content is."""


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """The files of a job's data on this computer, as they were read."""

    files: tuple[SentFile, ...] = ()
    paths: Mapping[str, Path] = field(default_factory=dict)
    """Where each is here, by its path in the data folder."""
    stamps: Mapping[str, Stamp] = field(default_factory=dict)
    withheld: tuple[Path, ...] = ()
    """Files that are left out since they hold credentials."""


class LocalData:
    """Reads the files that `data:` names. What it knows of them stays in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept: dict[DataFile, DataFile] = {}
        self._sets: dict[tuple[DataFile, ...], DataSet] = {}
        self._sent: tuple[int, float] | None = None
        """Bytes of the last pack, and the monotonic time from which it is sent."""

    def sized(self, spec: JobSpec) -> JobSpec:
        """Return the job with the size of its local data now, where it was not submitted yet.

        Raises JobValueError.
        """
        data = tuple(
            file if file.url or file.sha256 else replace(file, size=sum(f.size for f in _found(file)))
            for file in spec.data
        )
        return replace(spec, data=data)

    def kept(self, spec: JobSpec, is_secret: Callable[[Path], bool]) -> JobSpec:
        """Return the job with the checksum and the size of its local data, as the files are now."""
        for file in spec.data:
            if not file.url and file.sha256 is None and file not in self._kept:
                found = self._read(file, is_secret).files
                size = sum(each.size for each in found)
                self._kept[file] = replace(file, sha256=_digest(found), size=size)
        return replace(spec, data=tuple(self._kept.get(file, file) for file in spec.data))

    def load(self, spec: JobSpec, is_secret: Callable[[Path], bool]) -> DataSet:
        """Return the job's local data. Raises UsageError where they are not those that were submitted."""
        entries = tuple(file for file in spec.data if not file.url)
        if entries not in self._sets:
            sets = [self._read(file, is_secret, is_kept=True) for file in entries]
            self._sets[entries] = DataSet(
                files=tuple(file for each in sets for file in each.files),
                paths={name: path for each in sets for name, path in each.paths.items()},
                stamps={name: stamp for each in sets for name, stamp in each.stamps.items()},
                withheld=tuple(path for each in sets for path in each.withheld),
            )
        return self._sets[entries]

    def estimate(self, spec: JobSpec) -> UploadEstimate | None:
        """Return what is sent of the job's data to each machine; None: nothing."""
        found = [each for file in spec.data if not file.url for each in _found(file)]
        mbps = self._measured_mbps()
        size = sum(each.size for each in found)
        return (
            UploadEstimate(files=len(found), size=size, mbps=self.mbps, is_measured=mbps is not None)
            if found
            else None
        )

    @property
    def mbps(self) -> float:
        """Upload speed of this computer's line in Mbit/s, as the last upload measured it, or assumed."""
        return self._measured_mbps() or SpeedHistory.up_mbps

    def _measured_mbps(self) -> float | None:
        with suppress(OSError, ValueError, TypeError):
            return max(0.1, float(json.loads((self._folder / "line.json").read_bytes())))
        return None

    def _read(self, entry: DataFile, is_secret: Callable[[Path], bool], *, is_kept: bool = False) -> DataSet:
        """Read the files of an entry that changed since they were read. `is_kept`: none may have changed."""
        root = _root(entry)
        memory = self._folder / f"{hashlib.sha256(os.fsencode(root)).hexdigest()[:32]}.json"
        known: dict[str, tuple[list[int], str]] = {}
        with suppress(OSError, ValueError):
            known = json.loads(memory.read_bytes())
        files, paths, stamps, withheld = list[SentFile](), dict[str, Path](), dict[str, Stamp](), list[Path]()
        read: dict[str, tuple[Stamp, str]] = {}
        for file in _found(entry):
            name = f"{entry.target}/{file.name}" if root.is_dir() else entry.target
            if file.target is not None:
                files.append(SentFile(path=name, target=file.target))
                continue
            found = file.path.lstat()
            stamp = _stamp(found)
            before, digest = known.get(file.name, ([], ""))
            if tuple(before) != stamp:
                leaks = root.is_dir() and (is_secret(file.path) or holds_credentials(file))
                digest = "" if leaks else _sha256(file.path, stamp)
            read[file.name] = stamp, digest
            if not digest:
                withheld.append(file.path)
                continue
            is_executable = bool(found.st_mode & stat.S_IXUSR)
            files.append(SentFile(path=name, size=stamp[0], sha256=digest, executable=is_executable))
            paths[name], stamps[name] = file.path, stamp
        if not is_kept:
            write_json(memory, read, durable=False)
        elif _digest(files) != entry.sha256:
            names = sorted(
                n for n in known.keys() | read.keys() if known.get(n, "  ")[1] != read.get(n, "  ")[1]
            )
            raise _changed(
                root / names[0] if names and root.is_dir() else root, "since the job was submitted"
            )
        return DataSet(files=tuple(files), paths=paths, stamps=stamps, withheld=tuple(withheld))

    def pack(self, data: DataSet, target: Path, lacks: DataReceipt, *, measure: bool) -> int:
        """Write the next pack of what the machine lacks, and return the bytes of files in it.

        `measure`: the time since the last pack is that of the line. Raises UsageError when a file changed,
        OSError when the pack cannot be written.
        """
        contents, at = contents_of(data.files), lacks.at
        if lacks.damaged is not None:
            name = contents[lacks.damaged][0].path
            if _sha256(data.paths[name], data.stamps[name]) != contents[lacks.damaged][0].sha256:
                raise _changed(data.paths[name])
        self._note_speed(measure=measure)
        room = min(_MAX_PACK_BYTES, max(_MIN_PACK_BYTES, sum(f[0].size for f in contents) // _PACKS))
        pieces: list[tuple[int, int, int]] = []
        for index in lacks.missing[:_MAX_PIECES]:
            size = min(room, contents[index][0].size - at)
            pieces.append((index, at, size))
            room, at = room - size, 0
            if not room:
                break
        with target.open("wb") as pack:
            pack.write(json.dumps(pieces).encode() + b"\n")
            for index, offset, size in pieces:
                name = contents[index][0].path
                for chunk in _chunks(data.paths[name], data.stamps[name], offset, size):
                    pack.write(chunk)
        total = sum(size for *_, size in pieces)
        self._sent = total, time.monotonic()
        return total

    def _note_speed(self, *, measure: bool) -> None:
        if measure and self._sent is not None and self._sent[0] >= _MIN_PACK_BYTES:
            seconds = max(1e-3, time.monotonic() - self._sent[1])
            with suppress(OSError):
                write_json(
                    self._folder / "line.json", round(self._sent[0] * 8e-6 / seconds, 1), durable=False
                )
        self._sent = None


def _root(entry: DataFile) -> Path:
    return Path(os.path.realpath(os.path.expanduser(entry.path or "")))  # noqa: PTH111


def _found(entry: DataFile) -> Iterator[OutgoingFile]:
    """Yield the files and links of an entry, sorted by name. Raises JobValueError, UsageError."""
    root = _root(entry)
    if not root.exists():
        raise JobValueError(f"data: no file or folder {entry.path} on this computer")
    folder = root if root.is_dir() else root.parent
    names = (
        [name for name in walk(root) if not name.endswith(MACOS_METADATA)] if root.is_dir() else [root.name]
    )
    if len(names) > _MAX_FILES:
        raise JobValueError(
            f"data: {root} has more than {_MAX_FILES:,} files", hint="put them into archives, as tar files"
        )
    yield from outgoing_files(folder, sorted(names))


def _digest(files: Sequence[SentFile]) -> str:
    return hashlib.sha256(json.dumps([asdict(file) for file in files]).encode()).hexdigest()


def _changed(path: Path, when: str = "while it was sent") -> UsageError:
    return UsageError(f"data: {path} changed {when}", hint="vastrun launch JOB.yaml   sends it as it is then")


def _sha256(path: Path, stamp: Stamp) -> str:
    digest = hashlib.sha256()
    for chunk in _chunks(path, stamp, 0, stamp[0]):
        digest.update(chunk)
    return digest.hexdigest()


def _chunks(path: Path, stamp: Stamp, offset: int, size: int) -> Iterator[bytes]:
    """Yield a part of a file. Raises UsageError when it is not, or no longer, the file of that stamp."""
    try:
        # It may have become a link or a pipe.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags), "rb") as source:
            is_same = _stamp(os.fstat(source.fileno())) == stamp
            source.seek(offset)
            while is_same and size > 0 and (chunk := source.read(min(size, 1 << 20))):
                size -= len(chunk)
                yield chunk
            if size or _stamp(os.fstat(source.fileno())) != stamp:
                raise _changed(path)
    except OSError as error:
        raise UsageError(f"data: cannot read {path}: {error.strerror}") from error


def _stamp(found: os.stat_result) -> Stamp:
    return found.st_size, found.st_mtime_ns, found.st_ino
