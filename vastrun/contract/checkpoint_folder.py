"""Checkpoint folder: layout of a run's checkpoints; commits, removes and verifies them. No torch.

A checkpoint is written as `.step-N.part` and renamed when all of it is on disk. Before it is removed, it is
renamed to a part again: a folder `step-N` is never incomplete.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Annotated, BinaryIO

from vastrun.contract.outcome import FileChecksum
from vastrun.contract.records import MaxLength, Range, read_json, read_small, write_json

MANIFEST = "manifest.json"
LATEST = "latest.json"
STATE = "state.json"
FILES = "files"
"""Folder of a snapshot with the files, by their paths relative to the box."""
_MAX_ENTRIES = 100_000

_NAME = re.compile(r"step-(\d{6,})")
_Path = Annotated[str, MaxLength(4096)]
MIN_BYTES = 1_000_000
_SUFFIXES = (
    *(".pt", ".pth", ".ckpt", ".safetensors", ".bin", ".onnx", ".npz", ".npy", ".h5", ".hdf5", ".pkl"),
    *(".msgpack", ".gguf", ".tar", ".distcp"),
)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The files of a checkpoint; paths relative to its folder."""

    step: int
    files: Annotated[tuple[FileChecksum, ...], MaxLength(_MAX_ENTRIES)]


@dataclass(frozen=True, kw_only=True)
class SnapshotState:
    """State of a snapshot of a program; a checkpoint that the program stored has other keys."""

    is_calm: bool = True
    """True: taken between two saves, as far as that could be seen."""
    step: Annotated[int, Range(0, 2**53)] = 0
    """The program's step when it saved last."""
    resume: _Path = ""
    """Path of the newest checkpoint by `checkpoints.files`, relative to the box."""
    files: Annotated[Mapping[_Path, tuple[Annotated[int, Range(0, 2**53)], ...]], MaxLength(_MAX_ENTRIES)] = (
        field(default_factory=dict)
    )
    """Mode, and time of the last write in microseconds, of each file."""
    links: Annotated[Mapping[_Path, _Path], MaxLength(_MAX_ENTRIES)] = field(default_factory=dict)
    folders: Annotated[tuple[_Path, ...], MaxLength(_MAX_ENTRIES)] = ()
    """Empty folders."""

    @classmethod
    def of(cls, checkpoint: Path) -> SnapshotState:
        """Read the state of a snapshot. One that cannot be read has no files of a program."""
        try:
            return read_json(cls, read_small(checkpoint / STATE, 32 << 20))
        except (OSError, ValueError):
            return cls()


class DamagedError(Exception):
    """A checkpoint does not match its manifest."""


@dataclass(frozen=True, kw_only=True)
class CheckpointFolder:
    """The checkpoints of one run. Other ranks than rank 0 only write files in a part."""

    path: Path
    keep: int
    """Number of the newest checkpoints to keep."""
    keep_steps: frozenset[int] = frozenset()
    """Steps whose checkpoints are kept, too: the ends of stages."""

    def part(self, step: int) -> Path:
        """Return the folder in which the checkpoint of `step` is written."""
        return self.path / f".{name_of(step)}.part"

    def remove_parts(self) -> None:
        """Remove the parts that killed writers left."""
        for part in self.path.glob(".*.part"):
            shutil.rmtree(part) if part.is_dir() else part.unlink()

    def commit(self, step: int, files: list[FileChecksum]) -> None:
        """Make the part of `step`, with these files, the newest checkpoint; remove old checkpoints.

        An OSError, for instance of a full disk, leaves the existing checkpoints unchanged.
        """
        self._prune(self._make_newest(step, files))

    def _make_newest(self, step: int, files: list[FileChecksum]) -> str:
        """Make the part of `step` the newest checkpoint, and return its name."""
        part, final = self.part(step), self.path / name_of(step)
        for file in files:
            # Missing when a rank wrote it to another disk: stat() raises.
            if os.stat(f"{part}/{file.path}").st_size != file.size:  # noqa: PTH116 (of many files)
                raise OSError(f"{part / file.path} is not as it was written")
        write_json(part / MANIFEST, {"step": step, "files": [*map(vars, files)]})
        # Synced before the rename: a folder with that name is complete, even after a power failure.
        _sync(part)
        for path in newest_first(self.path):
            if step_of(path) >= step:  # damaged, or the run would have continued from it
                self._remove(path)
        part.rename(final)
        _sync(self.path)
        write_json(self.path / LATEST, {"step": step, "path": final.name})
        return final.name

    def remove_damaged(self, step: int) -> None:
        """Remove the damaged checkpoint of `step`. `latest.json` then names the newest intact one."""
        path = self.path / name_of(step)
        intact = [other for other in newest_first(self.path) if other != path and _has_expected_sizes(other)]
        if intact:
            write_json(self.path / LATEST, {"step": step_of(intact[0]), "path": intact[0].name})
        else:
            (self.path / LATEST).unlink(missing_ok=True)
        self._remove(path)

    def discard(self, step: int) -> None:
        """Remove the part of `step`, to free space on a disk that may be full."""
        shutil.rmtree(self.part(step), ignore_errors=True)

    def _prune(self, committed: str, *named: str) -> None:
        """Remove all but the newest, those of the steps to keep, and the named ones."""
        found, known = newest_first(self.path), {committed, *map(name_of, self.keep_steps)}
        whole = (path.name for path in found if path.name in known or _has_expected_sizes(path))
        keep = {*known, *islice(whole, self.keep), *named}
        for path in found:
            if path.name not in keep:
                self._remove(path)

    def _remove(self, checkpoint: Path) -> None:
        # Renamed first: a process that is killed halfway leaves a part, not an incomplete checkpoint.
        doomed = checkpoint.with_name(f".{checkpoint.name}.old.part")
        checkpoint.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)


def newest_first(folder: Path) -> list[Path]:
    """List the checkpoints in a folder, the newest first."""
    found = (path for path in folder.glob("step-*") if _NAME.fullmatch(path.name))
    return sorted(found, key=step_of, reverse=True)


def name_of(step: int) -> str:
    """Return the folder name of the checkpoint after this step."""
    return f"step-{step:06d}"


def step_of(checkpoint: Path) -> int:
    """Return the step of a checkpoint, from its folder name."""
    return int(checkpoint.name.removeprefix("step-"))


def verify(checkpoint: Path, *, share: int = 0, shares: int = 1) -> Manifest:
    """Check every `shares`-th file of a checkpoint and return its manifest. Raises DamagedError."""
    try:
        manifest = read_manifest(checkpoint, step_of(checkpoint))
        for file in manifest.files[share::shares]:
            if replace(checksum_file(checkpoint / file.path), path=file.path) != file:
                raise DamagedError(f"{checkpoint.name}/{file.path} does not match its manifest")
    except (OSError, ValueError) as error:
        raise DamagedError(f"{checkpoint.name} cannot be read: {error}") from error
    return manifest


def read_manifest(checkpoint: Path, step: int) -> Manifest:
    """Read the manifest of a checkpoint of that step. Raises OSError; ValueError; DamagedError."""
    manifest = read_json(Manifest, (checkpoint / MANIFEST).read_text(encoding="utf-8"))
    if manifest.step != step:
        raise DamagedError(f"{checkpoint.name} has a manifest of step {manifest.step}")
    if not manifest.files:
        raise DamagedError(f"{checkpoint.name} has a manifest without files")
    if len({file.path for file in manifest.files}) < len(manifest.files):
        raise DamagedError(f"{checkpoint.name} lists a file twice")
    for file in manifest.files:
        if not is_inside(file.path):
            raise DamagedError(f"{checkpoint.name} lists {file.path!r}, which is outside of its folder")
    return manifest


def is_inside(path: str) -> bool:
    """Tell whether a relative path stays in the folder in which it begins."""
    parts = PurePosixPath(path)
    return bool(parts.parts) and not parts.is_absolute() and ".." not in parts.parts


def _has_expected_sizes(checkpoint: Path) -> bool:
    """Compare the sizes of its files only: to read them all takes as long as to write them."""
    try:
        manifest = read_manifest(checkpoint, step_of(checkpoint))
        return all((checkpoint / file.path).stat().st_size == file.size for file in manifest.files)
    except (OSError, ValueError, DamagedError):
        return False


def checksum_file(path: Path | str) -> FileChecksum:
    """Return the name, the size and the checksum of a file; of many, a `str` takes less. Raises OSError."""
    with open(path, "rb") as file:  # noqa: PTH123
        digest = sha256_of(file)
        return FileChecksum(path=os.path.basename(path), size=file.tell(), sha256=digest)  # noqa: PTH119


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def looks_like_weights(path: str, size: int) -> bool:
    """Tell whether a file of this name and size is likely to be expensive to recreate."""
    return size >= MIN_BYTES and path.lower().endswith(_SUFFIXES)


def sha256_of(file: BinaryIO) -> str:
    """Return the hexadecimal SHA-256 of the rest of a file. Raises OSError.

    As `hashlib.file_digest`, which needs Python 3.11.
    """
    digest = hashlib.sha256()
    while chunk := file.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest()
