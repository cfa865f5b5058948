"""Local data: the files of this computer that `data:` names, their checksums, and the packs of them."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from vastrun.contract.data_files import DataReceipt, SentFile, contents_of
from vastrun.contract.records import write_json
from vastrun.launcher.bundle.checkout import MACOS_METADATA
from vastrun.launcher.bundle.outgoing import OutgoingFile, holds_credentials, outgoing_files, walk
from vastrun.launcher.core.errors import JobValueError, UsageError
from vastrun.launcher.core.job import DataFile, JobSpec
from vastrun.launcher.decisions.history import SpeedHistory

_MAX_FILES = 100_000
_MIN_PACK_BYTES, _MAX_PACK_BYTES, _PACKS = 4 << 20, 64 << 20, 64
"""A pack is one of about 64, within these sizes."""

Stamp = tuple[int, int, int]
"""Size, time of the last change in ns, and number of a file: where they are the same, its content is."""


@dataclass(frozen=True, kw_only=True)
class LocalFile:
    """A file or link here, as it was read."""

    path: Path
    stamp: Stamp
    sent: SentFile | None
    """What is sent; None: nothing, since it holds credentials."""


class LocalData:
    """Reads the files that `data:` names. What it knows of them stays in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._entries: dict[DataFile, DataFile] = {}
        self._sets: dict[tuple[DataFile, ...], list[LocalFile]] = {}
        self._sent: tuple[int, float] | None = None
        """Bytes of the last pack, and the monotonic time from which it is sent."""

    def with_digests(self, spec: JobSpec, is_secret: Callable[[Path], bool]) -> JobSpec:
        """Return the job with the checksum and the size of its local data, as the files are now."""
        for file in spec.data:
            if not file.url and file.sha256 is None and file not in self._entries:
                found = sent_files(self._read(file, is_secret))
                self._entries[file] = replace(
                    file, sha256=_digest(found), size=sum(each.size for each in found)
                )
        return replace(spec, data=tuple(self._entries.get(file, file) for file in spec.data))

    def load(self, spec: JobSpec, is_secret: Callable[[Path], bool]) -> list[LocalFile]:
        """Return the job's local data. Raises UsageError where they are not those that were submitted."""
        entries = tuple(file for file in spec.data if not file.url)
        if entries not in self._sets:
            self._sets[entries] = [each for file in entries for each in self._read(file, is_secret)]
        return self._sets[entries]

    @property
    def mbps(self) -> float:
        """Upload speed of this computer in Mbit/s, as the last upload to a paid machine measured it."""
        with suppress(OSError, ValueError, TypeError):
            return max(0.1, float(json.loads((self._folder / "line.json").read_bytes())))
        return SpeedHistory.up_mbps

    def _read(self, entry: DataFile, is_secret: Callable[[Path], bool]) -> list[LocalFile]:
        """Read those files of an entry that changed since they were read."""
        root, known, read = _root(entry), dict[str, tuple[list[int], str]](), dict[str, tuple[Stamp, str]]()
        memory = self._folder / f"{hashlib.sha256(os.fsencode(root)).hexdigest()[:32]}.json"
        with suppress(OSError, ValueError):
            known = json.loads(memory.read_bytes())
        files, is_folder = list[LocalFile](), root.is_dir()
        for file in local_files(entry):
            found, digest, sent = file.path.lstat(), "", None
            stamp = _stamp(found)
            if file.target is None and not (is_folder and is_secret(file.path)):
                before, digest = known.get(file.name, ([], ""))
                if tuple(before) != stamp:
                    digest = "" if is_folder and holds_credentials(file) else _sha256(file.path, stamp)
                read[file.name] = stamp, digest
            if digest or file.target is not None:
                sent = SentFile(
                    path=f"{entry.target}/{file.name}" if is_folder else entry.target,
                    size=stamp[0] if digest else 0,
                    sha256=digest,
                    executable=bool(digest and found.st_mode & stat.S_IXUSR),
                    target=file.target,
                )
            files.append(LocalFile(path=file.path, stamp=stamp, sent=sent))
        if entry.sha256 is None:
            write_json(memory, read, durable=False)
        elif _digest(sent_files(files)) != entry.sha256:
            then, now = ({(name, digest) for name, (_, digest) in one.items()} for one in (known, read))
            changed = min(then ^ now, default=(".", ""))[0]
            raise _changed(root / changed if is_folder else root, "since the job was submitted")
        return files

    def pack(self, files: Sequence[LocalFile], target: Path, lacks: DataReceipt, *, measure: bool) -> int:
        """Write the next pack of what the machine lacks, and return the bytes of files in it.

        `measure`: the time since the last pack is that of the line. Raises UsageError when a file changed,
        OSError when the pack cannot be written.
        """
        if measure and self._sent is not None and self._sent[0] >= _MIN_PACK_BYTES:
            mbps = self._sent[0] * 8e-6 / max(1e-3, time.monotonic() - self._sent[1])
            write_json(self._folder / "line.json", round(mbps, 1), durable=False)
        by_content = {file.sent.sha256: file for file in reversed(files) if file.sent is not None}
        digests = [same[0].sha256 for same in contents_of(sent_files(files))]
        contents = [by_content[digest] for digest in digests]
        bad = lacks.damaged
        if bad is not None and _sha256(contents[bad].path, contents[bad].stamp) != digests[bad]:
            raise _changed(contents[bad].path)
        size, at = sum(file.stamp[0] for file in contents), lacks.at
        size = room = min(_MAX_PACK_BYTES, max(_MIN_PACK_BYTES, size // _PACKS))
        pieces: list[tuple[int, int, int]] = []
        for index in lacks.missing:
            pieces.append((index, at, min(room, contents[index].stamp[0] - at)))
            room, at = room - pieces[-1][2], 0
            if not room:
                break
        with target.open("wb") as pack:
            pack.write(json.dumps(pieces).encode() + b"\n")
            for index, offset, length in pieces:
                pack.writelines(_chunks(contents[index].path, contents[index].stamp, offset, length))
        self._sent = size - room, time.monotonic()
        return size - room


def sent_files(files: Iterable[LocalFile]) -> list[SentFile]:
    """Return what is sent of these files."""
    return [file.sent for file in files if file.sent is not None]


def local_files(entry: DataFile) -> Iterator[OutgoingFile]:
    """Yield the files and links of an entry, sorted by name. Raises JobValueError, UsageError."""
    root = _root(entry)
    if not root.exists():
        raise JobValueError(f"data: no file or folder {entry.path} on this computer")
    names = [name for name in walk(root) if not name.endswith(MACOS_METADATA)] if root.is_dir() else None
    if names is not None and len(names) > _MAX_FILES:
        hint = "put them into archives, for example tar files"
        raise JobValueError(f"data: {root} has more than {_MAX_FILES:,} files", hint=hint)
    yield from outgoing_files(root.parent if names is None else root, sorted(names or [root.name]))


def sized(spec: JobSpec) -> JobSpec:
    """Return the job with the size of its local data now, where it was not submitted yet.

    Raises JobValueError, UsageError.
    """
    data = (
        file if file.url or file.sha256 else replace(file, size=sum(f.size for f in local_files(file)))
        for file in spec.data
    )
    return replace(spec, data=tuple(data))


def _root(entry: DataFile) -> Path:
    return Path(os.path.realpath(os.path.expanduser(entry.path or "")))  # noqa: PTH111


def list_text(files: Iterable[SentFile]) -> str:
    """Return the list of the files as the machine reads it, a line for each."""
    return "".join(f"{json.dumps(vars(file))}\n" for file in files)


def _digest(files: Iterable[SentFile]) -> str:
    return hashlib.sha256(list_text(files).encode()).hexdigest()


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
            if _stamp(os.fstat(source.fileno())) == stamp:
                source.seek(offset)
                while size > 0 and (chunk := source.read(min(size, 1 << 20))):
                    size -= len(chunk)
                    yield chunk
            if size or _stamp(os.fstat(source.fileno())) != stamp:
                raise _changed(path)
    except OSError as error:
        raise UsageError(f"data: cannot read {path}: {error.strerror}") from error


def _stamp(found: os.stat_result) -> Stamp:
    return found.st_size, found.st_mtime_ns, found.st_ino
