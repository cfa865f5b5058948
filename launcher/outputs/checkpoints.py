"""Checkpoints downloaded during training: the newest, in slices, complete or not at all."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.checkpoint_folder import name_of
from vastrun.contract.outcome import FileChecksum
from vastrun.contract.records import write_json
from vastrun.launcher.core import CheckpointCopy
from vastrun.launcher.core.errors import BoxError, SliceOverError, UnreachableError
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.box_reader import fetch_small_file
from vastrun.launcher.gate.caps import ExchangeBudget
from vastrun.launcher.gate.manifest import INCOMING, SnapshotHead, parse_latest_checkpoint, parse_manifest
from vastrun.launcher.outputs import disk
from vastrun.launcher.outputs.folder import place_of
from vastrun.launcher.ports import Remote

LATEST = "latest.json"
MANIFEST = "manifest.json"
_MAX_KEPT = 2
"""Number of checkpoints kept: the newest, and one more in case that is unusable."""
_HOLD_TIMEOUT_S = 5.0
_NAME = re.compile(r"step-\d{6,18}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class _PartialCheckpoint:
    """Checkpoint of the box whose download has started."""

    out: Path
    name: str
    files: tuple[FileChecksum, ...]
    """Paths relative to the checkpoint's folder."""

    @property
    def folder(self) -> Path:
        """Holds the box's manifest from the beginning, and each file once it was checked."""
        return self.out / INCOMING / self.name

    @property
    def damaged_mark(self) -> Path:
        """There when this checkpoint is damaged on the box: it is not asked for again."""
        return self.folder.with_suffix(".damaged")

    @cached_property
    def head(self) -> SnapshotHead:
        """Description of itself, once its first file is here."""
        return SnapshotHead.read(self.folder)

    @property
    def needed(self) -> Sequence[FileChecksum]:
        """All but the older checkpoints; its first file at least, whatever the box says."""
        return self.files[: max(1, len(self.files) - self.head.older)]

    def progress(self, *, damaged: bool = False, is_usable: bool = False) -> CheckpointCopy:
        """Say how far it has come."""
        downloaded = [(self.folder / file.path).is_file() for file in self.files]
        parts = zip(downloaded, self.files, strict=True)
        here = sum(
            file.size if whole else disk.bytes_held(disk.part_path(self.out, file)) for whole, file in parts
        )
        size = sum(file.size for file in self.files)
        of = CheckpointCopy(name=self.name, size=size, held=here, taken_at=self.head.at)
        return replace(of, damaged=damaged, is_usable=is_usable)


def continue_copy(
    out: Path,
    remote: Remote,
    limit: int,
    disk_bytes: float,
    budget: ExchangeBudget,
    keep_steps: Set[int] = frozenset(),
) -> CheckpointCopy | None:
    """Download up to `limit` bytes more. Returns None when there is nothing to bring.

    `keep_steps`: steps, the ends of stages, whose checkpoints are brought and kept beside the newest.
    """
    keep = tuple(name_of(step) for step in sorted(keep_steps))
    copy = _resume(out, budget) or _start(out, remote, disk_bytes, budget, keep)
    if copy is None:
        return None
    has_grown = False
    for number, file in enumerate(copy.files):
        part, downloaded = disk.part_path(out, file), copy.folder / file.path
        if downloaded.is_file():
            continue
        if number and number >= len(copy.needed) and _place_usable(copy, budget):
            return copy.progress(is_usable=True)
        if budget.is_late and has_grown:  # of many files each takes a while, however small it is
            return copy.progress()
        has_grown = True
        limit -= _download_part(copy, file, remote, limit, budget)
        if disk.bytes_held(part) < file.size and (limit <= 0 or budget.is_late):
            return copy.progress()
        if disk.bytes_held(part) < file.size:  # the box keeps it no more: a newer one is or will be there
            _discard(out)
            return None
        if not (disk.is_complete(part, file, budget.check) and disk.move_into(part, downloaded, out)):
            _unpin(remote)
            _discard(copy.out)
            _mark(copy)  # its checksums do not hold
            return copy.progress(damaged=True)
    _unpin(remote)
    home, progress = place_of(copy.out, layout.CHECKPOINTS), copy.progress()
    _place(copy, copy.folder)
    _discard(copy.out)
    calm = next((path.name for path in _newest_first(home) if SnapshotHead.read(path).is_calm), "")
    _remove(path for path in _newest_first(home)[_MAX_KEPT:] if path.name not in (*keep, calm))
    return progress


def prune(out: Path, collected: Iterable[Path]) -> None:
    """Keep only the checkpoints that were collected: the box itself kept no other."""
    folder = place_of(out, layout.CHECKPOINTS)
    named = {place.relative_to(folder).parts[0] for place in collected if place.is_relative_to(folder)}
    found = _newest_first(folder)
    if any(path.name in named for path in found):
        _remove(path for path in found if path.name not in named)


def _files_here(out: Path, budget: ExchangeBudget) -> dict[tuple[str, int], Path]:
    """Return the files of the newest checkpoint here by checksum and size: a snapshot shares most with it."""
    found = {}
    for folder in _newest_first(place_of(out, layout.CHECKPOINTS))[:1]:
        with suppress(OSError, BoxError):
            for file in parse_manifest((folder / MANIFEST).read_bytes(), budget=budget).files:
                place = folder / file.path
                if place.is_file() and place.stat().st_size == file.size:
                    found[file.sha256, file.size] = place
    return found


def _resume(out: Path, budget: ExchangeBudget) -> _PartialCheckpoint | None:
    """The checkpoint whose manifest came before."""
    for folder in _newest_first(out / INCOMING):
        manifest = folder / MANIFEST
        if manifest.is_file():
            files = parse_manifest(manifest.read_bytes(), budget=budget).files
            return _PartialCheckpoint(out=out, name=folder.name, files=files)
    return None


def _start(
    out: Path, remote: Remote, disk_bytes: float, budget: ExchangeBudget, keep: Sequence[str]
) -> _PartialCheckpoint | None:
    """The end of a stage that is not here yet, else the newest checkpoint of the box."""
    newest = parse_latest_checkpoint(
        fetch_small_file(remote, f"{layout.CHECKPOINTS}/{LATEST}", budget=budget)
    )
    if newest is None:
        return None
    for name in keep:
        absent = _PartialCheckpoint(out=out, name=name, files=())
        is_known = (place_of(out, layout.CHECKPOINTS) / name).is_dir() or absent.damaged_mark.exists()
        if _step_of(name) < _step_of(newest) and not is_known:
            if (copy := _start_copy(out, name, remote, disk_bytes, budget)) is not None:
                return copy
            # It is not on this box, for instance of a run that this one continues: it is not asked for again.
            _mark(absent)
    return None if newest == _latest_here(out) else _start_copy(out, newest, remote, disk_bytes, budget)


def _start_copy(
    out: Path, name: str, remote: Remote, disk_bytes: float, budget: ExchangeBudget
) -> _PartialCheckpoint | None:
    """Begin to download a checkpoint of the box; None: it is not whole there, or damaged."""
    manifest = _fetch_manifest(out, name, remote, budget)
    listing = parse_manifest(manifest, disk_bytes, budget)
    copy = _PartialCheckpoint(out=out, name=name, files=listing.files)
    if not listing.files or listing.rejected or copy.damaged_mark.exists():
        return None
    if any(file.path.casefold() == MANIFEST for file in listing.files):
        return None  # it would count as downloaded before it was
    # All of it must fit before its first byte comes: half a checkpoint is of no use.
    disk.need_space(out, sum(file.size for file in listing.files))
    # The training removes old checkpoints meanwhile; links, which take no room, keep this one.
    box = layout.OUTBOX
    command = f"rm -rf {box} && mkdir {box} && cp -rl {layout.CHECKPOINTS}/{name} {box}/"
    with suppress(UnreachableError):  # what is not held may still stay for long enough
        remote.run(command, timeout_s=_HOLD_TIMEOUT_S)
    copy.folder.mkdir(parents=True, exist_ok=True)
    disk.write_file(copy.folder / MANIFEST, manifest)
    here = _files_here(out, budget)
    for file in copy.files:
        if (twin := here.get((file.sha256, file.size))) is not None:
            disk.link_into(twin, disk.part_path(out, file), copy.folder / file.path, out)
    return copy


def _fetch_manifest(out: Path, name: str, remote: Remote, budget: ExchangeBudget) -> bytes:
    """Download the rest of a checkpoint's manifest. Raises SliceOverError while more of it has to come."""
    part, max_bytes = out / INCOMING / f"{name}.manifest", caps.CHECKPOINT_MANIFEST
    file = FileChecksum(path=f"{layout.CHECKPOINTS}/{name}/{MANIFEST}", size=max_bytes + 1, sha256="")
    if not disk.extend_part(part, file, remote, budget, limit=file.size):
        raise SliceOverError(f"the manifest of {name} comes slowly")
    if disk.bytes_held(part) > max_bytes:
        raise BoxError(f"{file.path} is larger than {max_bytes} bytes")
    content = part.read_bytes()
    part.unlink()
    budget.spend(memory=len(content))
    return content


def _unpin(remote: Remote) -> None:
    with suppress(UnreachableError):
        remote.run(f"rm -rf {layout.OUTBOX}", timeout_s=_HOLD_TIMEOUT_S)


def _download_part(
    copy: _PartialCheckpoint, file: FileChecksum, remote: Remote, limit: int, budget: ExchangeBudget
) -> int:
    """Download more of the file, in one request where possible; return the number of bytes."""
    part, before = disk.part_path(copy.out, file), disk.bytes_held(disk.part_path(copy.out, file))
    for folder in (layout.OUTBOX, layout.CHECKPOINTS):  # a disk without hard links holds nothing
        on_box = replace(file, path=f"{folder}/{copy.name}/{file.path}")
        disk.extend_part(part, on_box, remote, budget, limit=max(0, limit), chunk=limit)
        if disk.bytes_held(part) > before:
            break
    return disk.bytes_held(part) - before


def _discard(out: Path) -> None:
    """Nothing is on its way any more."""
    shutil.rmtree(out / INCOMING, ignore_errors=True)


def _mark(copy: _PartialCheckpoint) -> None:
    copy.damaged_mark.parent.mkdir(exist_ok=True)
    copy.damaged_mark.touch()


def _place_usable(copy: _PartialCheckpoint, budget: ExchangeBudget) -> bool:
    """Place it as if the job kept one checkpoint: only older ones are missing, which no small file names.

    Return False where it has been placed before, or the disk has no links.
    """
    folder = copy.out / INCOMING / ".usable"
    if (place_of(copy.out, layout.CHECKPOINTS) / copy.name).is_dir():
        return False
    shutil.rmtree(folder, ignore_errors=True)
    for file in copy.needed:
        budget.check()
        if not disk.link_into(
            copy.folder / file.path, disk.part_path(copy.out, file), folder / file.path, copy.out
        ):
            return False
    write_json(folder / MANIFEST, {"step": _step_of(copy.name), "files": [*map(vars, copy.needed)]})
    _place(copy, folder)
    return True


def _place(copy: _PartialCheckpoint, folder: Path) -> None:
    """The checkpoint has its place and, if it is the newest, is the one to continue from."""
    home = place_of(copy.out, layout.CHECKPOINTS)
    shutil.rmtree(home / copy.name, ignore_errors=True)  # usable, or of a launcher that was killed meanwhile
    home.mkdir(exist_ok=True)
    folder.replace(home / copy.name)
    latest = _latest_here(copy.out)
    if latest is None or _step_of(latest) <= _step_of(copy.name):
        write_json(home / LATEST, {"step": _step_of(copy.name), "path": copy.name})


def _latest_here(out: Path) -> str | None:
    path = place_of(out, f"{layout.CHECKPOINTS}/{LATEST}")
    return parse_latest_checkpoint(path.read_bytes()) if path.is_file() else None


def _newest_first(folder: Path) -> list[Path]:
    found = (path for path in folder.glob("step-*") if _NAME.fullmatch(path.name) and path.is_dir())
    return sorted(found, key=lambda path: _step_of(path.name), reverse=True)


def _step_of(name: str) -> int:
    return int(name.removeprefix("step-"))


def _remove(folders: Iterable[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
