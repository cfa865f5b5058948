"""The folder of a run's checkpoints: what lies in it, and how one more takes its place. No torch.

A checkpoint is written as `.step-N.part` and renamed when all of it is on disk. It is renamed to such a name
again before it is removed: under `step-N` there is never a part of one.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Annotated

from vastrun.contract.outcome import FileSum
from vastrun.contract.records import AtMost, Like, read_json, write_json

MANIFEST = "manifest.json"
LATEST = "latest.json"
BEST = "best.json"

_NAME = re.compile(r"step-(\d{6,})")


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a checkpoint holds; paths relative to its folder."""

    step: int
    files: Annotated[tuple[FileSum, ...], AtMost(100_000)]


@dataclass(frozen=True, kw_only=True)
class Merit:
    """How good a checkpoint is: the lower the better."""

    by: str
    """What was measured, by its name in the metrics."""
    value: float


@dataclass(frozen=True, kw_only=True)
class BestCheckpoint:
    """What `best.json` says."""

    step: int
    path: Annotated[str, Like(r"step-\d{6,}")]
    """The checkpoint's folder, relative to the one that holds `best.json`; so it is in `latest.json`."""
    by: str
    value: float
    """As of `Merit`."""


class DamagedError(Exception):
    """A checkpoint is not what its manifest says."""


@dataclass(frozen=True, kw_only=True)
class CheckpointFolder:
    """The checkpoints of one run. Rank 0 alone changes anything but the files in a part."""

    path: Path
    keep: int
    """How many of the newest stay."""
    keep_best: bool
    """Whether the best one stays, too."""

    def part(self, step: int) -> Path:
        """Return where the checkpoint of `step` is written."""
        return self.path / f".{name_of(step)}.part"

    def sweep(self) -> None:
        """Remove what killed writers left."""
        for part in self.path.glob(".*.part"):
            shutil.rmtree(part) if part.is_dir() else part.unlink()

    def commit(self, step: int, merit: Merit | None, files: list[FileSum]) -> None:
        """Make the part of `step`, whose files these are, the newest checkpoint; remove what is kept no more.

        An OSError (such as a full disk) leaves the checkpoints that were there as they were.
        """
        part, final = self.part(step), self.path / name_of(step)
        for file in files:
            if (part / file.path).stat().st_size != file.size:  # or not there: a rank that has another disk
                raise OSError(f"{part / file.path} is not as it was written")
        write_json(part / MANIFEST, asdict(Manifest(step=step, files=tuple(files))))
        # On the disk before it has its name: what bears that name is whole, also after a power failure.
        _sync(part)
        for path in newest_first(self.path):
            if step_of(path) >= step:  # damaged, or the run would have continued there
                self._remove(path)
        part.rename(final)
        _sync(self.path)
        write_json(self.path / LATEST, {"step": step, "path": final.name})
        if self.keep_best and merit is not None and self._is_best(merit):
            write_json(self.path / BEST, {"step": step, "path": final.name, **asdict(merit)})
        self._prune()

    def withdraw(self, step: int) -> None:
        """Remove the checkpoint of `step`, which is damaged. The newest of the others is named instead."""
        path = self.path / name_of(step)
        others = [other for other in newest_first(self.path) if other != path and _seems_whole(other)]
        if others:
            write_json(self.path / LATEST, {"step": step_of(others[0]), "path": others[0].name})
        else:
            (self.path / LATEST).unlink(missing_ok=True)
        self._remove(path)

    def discard(self, step: int) -> None:
        """Remove the part of `step`: it takes no room on a disk that may be full."""
        shutil.rmtree(self.part(step), ignore_errors=True)

    def best(self) -> BestCheckpoint | None:
        """Return the best of the kept checkpoints; None when there is none."""
        try:
            best = read_json(BestCheckpoint, (self.path / BEST).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return best if (self.path / best.path / MANIFEST).is_file() else None

    def _is_best(self, merit: Merit) -> bool:
        """Compare with the best. What was measured otherwise cannot be compared, and is replaced."""
        best = self.best()
        return best is None or merit.by != best.by or merit.value < best.value

    def _prune(self) -> None:
        best = self.best() if self.keep_best else None
        whole = [path for path in newest_first(self.path) if _seems_whole(path)]
        kept = {path.name for path in whole[: self.keep]} | ({best.path} if best else set())
        for path in newest_first(self.path):
            if path.name not in kept:
                self._remove(path)

    def _remove(self, checkpoint: Path) -> None:
        # Another name first: a writer killed halfway leaves what `sweep` removes, no checkpoint with gaps.
        doomed = checkpoint.with_name(f".{checkpoint.name}.old.part")
        checkpoint.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)


def newest_first(folder: Path) -> list[Path]:
    """List the checkpoints in a folder."""
    found = (path for path in folder.glob("step-*") if _NAME.fullmatch(path.name))
    return sorted(found, key=step_of, reverse=True)


def which(text: str) -> str:
    """Read how a command line names a checkpoint. Raises argparse.ArgumentTypeError."""
    if text not in ("latest", "best") and not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"expected latest, best, or a step, got {text}")
    return text


def name_of(step: int) -> str:
    """Return the name of the checkpoint that is saved after that step."""
    return f"step-{step:06d}"


def step_of(checkpoint: Path) -> int:
    """Return the step after which it was saved, by its name."""
    return int(checkpoint.name.removeprefix("step-"))


def verify(checkpoint: Path, *, share: int = 0, shares: int = 1) -> Manifest:
    """Return a checkpoint's manifest when every `shares`-th of its files holds. Raises DamagedError."""
    try:
        manifest = _manifest_of(checkpoint)
        for file in manifest.files[share::shares]:
            if replace(sum_of(checkpoint / file.path), path=file.path) != file:
                raise DamagedError(f"{checkpoint.name}/{file.path} is not what its manifest says")
    except (OSError, ValueError) as error:
        raise DamagedError(f"{checkpoint.name} cannot be read: {error}") from error
    return manifest


def _manifest_of(checkpoint: Path) -> Manifest:
    manifest: Manifest = read_json(Manifest, (checkpoint / MANIFEST).read_text(encoding="utf-8"))
    if manifest.step != step_of(checkpoint):
        raise DamagedError(f"{checkpoint.name} has a manifest of step {manifest.step}")
    if not manifest.files:
        raise DamagedError(f"{checkpoint.name} has a manifest without files")
    for file in manifest.files:
        if not is_inside(file.path):
            raise DamagedError(f"{checkpoint.name} lists {file.path!r}, which is no file of it")
    return manifest


def is_inside(path: str) -> bool:
    """Tell whether a relative path stays in the folder that it begins in."""
    parts = PurePosixPath(path)
    return bool(parts.parts) and not parts.is_absolute() and ".." not in parts.parts


def _seems_whole(checkpoint: Path) -> bool:
    """Tell whether its files have their sizes: to read them all takes as long as to write them."""
    try:
        manifest = _manifest_of(checkpoint)
        return all((checkpoint / file.path).stat().st_size == file.size for file in manifest.files)
    except (OSError, ValueError, DamagedError):
        return False


def sum_of(path: Path) -> FileSum:
    """Checksum a file of a checkpoint."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return FileSum(path=path.name, size=path.stat().st_size, sha256=digest)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
