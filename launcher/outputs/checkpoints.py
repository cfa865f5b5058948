"""Checkpoints that come home while the training goes on: the newest, in slices, whole or not at all."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.outcome import FileChecksum
from vastrun.contract.records import write_json
from vastrun.launcher.core import CheckpointCopy
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.box_reader import fetch_small_file
from vastrun.launcher.gate.budget import ExchangeBudget
from vastrun.launcher.gate.manifest import INCOMING, parse_latest_checkpoint, parse_manifest
from vastrun.launcher.outputs.disk import is_home, moved, need_space, stored
from vastrun.launcher.outputs.download import grow, held, part_of
from vastrun.launcher.outputs.folder import place_of
from vastrun.launcher.ports import Remote

LATEST = "latest.json"
MANIFEST = "manifest.json"
_KEPT = 2
"""How many stay: the newest, and one more in case it cannot be used."""
_HOLD_TIMEOUT_S = 60.0
_NAME = re.compile(r"step-\d{6,18}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class _Copy:
    """A checkpoint of the box that has begun to come home."""

    out: Path
    name: str
    files: tuple[FileChecksum, ...]
    """Paths relative to the checkpoint's folder."""

    @property
    def folder(self) -> Path:
        """Holds the box's manifest from the beginning, and each file once it was checked."""
        return self.out / INCOMING / self.name

    @property
    def mark(self) -> Path:
        """There when this checkpoint is damaged on the box: it is not asked for again."""
        return self.folder.with_suffix(".damaged")

    def seen(self, *, damaged: bool = False) -> CheckpointCopy:
        """Say how far it has come."""
        came = [(self.folder / file.path).is_file() for file in self.files]
        parts = zip(came, self.files, strict=True)
        here = sum(file.size if whole else held(part_of(self.out, file)) for whole, file in parts)
        size = sum(file.size for file in self.files)
        return CheckpointCopy(name=self.name, size=size, held=here, damaged=damaged)


def continue_copy(
    out: Path, remote: Remote, limit: int, disk_bytes: float, budget: ExchangeBudget
) -> CheckpointCopy | None:
    """Download up to `limit` bytes more. Returns None when there is nothing to bring."""
    copy = _begun(out, budget) or _begin(out, remote, disk_bytes, budget)
    if copy is None:
        return None
    has_grown = False
    for file in copy.files:
        part, came = part_of(out, file), copy.folder / file.path
        if came.is_file():
            continue
        if budget.is_late and has_grown:  # of many files each takes a while, however small it is
            return copy.seen()
        has_grown = True
        limit -= _grown(copy, file, remote, limit, budget)
        if held(part) < file.size and limit <= 0:
            return copy.seen()
        if held(part) < file.size:  # the box keeps it no more: a newer one is there, or soon will be
            _forget(out)
            return None
        if not (is_home(part, file, budget.check) and moved(part, came, out)):
            _let_go(remote)
            return _refused(copy)
    _let_go(remote)
    return _finished(copy)


def prune(out: Path, collected: Iterable[Path]) -> None:
    """Keep only the checkpoints that were collected: the box itself kept no other."""
    folder = place_of(out, layout.CHECKPOINTS)
    named = {place.relative_to(folder).parts[0] for place in collected if place.is_relative_to(folder)}
    found = _newest_first(folder)
    if any(path.name in named for path in found):
        _remove(path for path in found if path.name not in named)


def _begun(out: Path, budget: ExchangeBudget) -> _Copy | None:
    """The checkpoint whose manifest came before."""
    for folder in _newest_first(out / INCOMING):
        manifest = folder / MANIFEST
        if manifest.is_file():
            files = parse_manifest(manifest.read_bytes(), budget=budget).files
            return _Copy(out=out, name=folder.name, files=files)
    return None


def _begin(out: Path, remote: Remote, disk_bytes: float, budget: ExchangeBudget) -> _Copy | None:
    """The newest checkpoint of the box, unless it is here already."""
    name = parse_latest_checkpoint(fetch_small_file(remote, f"{layout.CHECKPOINTS}/{LATEST}", budget=budget))
    if name is None or name == _latest_here(out):
        return None
    path = f"{layout.CHECKPOINTS}/{name}/{MANIFEST}"
    manifest = fetch_small_file(remote, path, caps.CHECKPOINT_MANIFEST, budget)
    listing = parse_manifest(manifest, disk_bytes, budget)
    copy = _Copy(out=out, name=name, files=listing.files)
    if not listing.files or listing.refused or copy.mark.exists():
        return None
    if any(file.path.casefold() == MANIFEST for file in listing.files):
        return None  # it would count as downloaded before it was
    # All of it must fit before its first byte comes: half a checkpoint is of no use.
    need_space(out, sum(file.size for file in listing.files))
    # The training removes old checkpoints meanwhile; this one must outlast its download.
    _hold(remote, name)
    copy.folder.mkdir(parents=True, exist_ok=True)
    stored(copy.folder / MANIFEST, manifest)
    return copy


def _hold(remote: Remote, name: str) -> None:
    """The box keeps these files, by links that take no room, however many newer checkpoints it saves."""
    box = layout.OUTBOX
    command = f"rm -rf {box} && mkdir {box} && cp -rl {layout.CHECKPOINTS}/{name} {box}/"
    remote.run(command, timeout_s=_HOLD_TIMEOUT_S)


def _let_go(remote: Remote) -> None:
    remote.run(f"rm -rf {layout.OUTBOX}", timeout_s=_HOLD_TIMEOUT_S)


def _grown(copy: _Copy, file: FileChecksum, remote: Remote, limit: int, budget: ExchangeBudget) -> int:
    """How many bytes of the file came, in one request where the box gives them all."""
    part, before = part_of(copy.out, file), held(part_of(copy.out, file))
    for folder in (layout.OUTBOX, layout.CHECKPOINTS):  # a disk without hard links holds nothing
        on_box = replace(file, path=f"{folder}/{copy.name}/{file.path}")
        grow(part, on_box, remote, budget, limit=max(0, limit), chunk=limit)
        if held(part) > before:
            break
    return held(part) - before


def _forget(out: Path) -> None:
    """Nothing is on its way any more."""
    shutil.rmtree(out / INCOMING, ignore_errors=True)


def _refused(copy: _Copy) -> CheckpointCopy:
    """Its checksums do not hold."""
    _forget(copy.out)
    copy.mark.parent.mkdir(exist_ok=True)
    copy.mark.touch()
    return copy.seen(damaged=True)


def _finished(copy: _Copy) -> CheckpointCopy:
    """The checkpoint has its place and is the one to continue from."""
    home = place_of(copy.out, layout.CHECKPOINTS)
    seen = copy.seen()
    shutil.rmtree(home / copy.name, ignore_errors=True)  # of a launcher that was killed before the next line
    home.mkdir(exist_ok=True)
    copy.folder.replace(home / copy.name)
    write_json(home / LATEST, {"step": int(copy.name.removeprefix("step-")), "path": copy.name})
    _forget(copy.out)
    _remove(_newest_first(home)[_KEPT:])
    return seen


def _latest_here(out: Path) -> str | None:
    path = place_of(out, f"{layout.CHECKPOINTS}/{LATEST}")
    return parse_latest_checkpoint(path.read_bytes()) if path.is_file() else None


def _newest_first(folder: Path) -> list[Path]:
    return sorted(_checkpoints(folder), key=lambda path: int(path.name.removeprefix("step-")), reverse=True)


def _checkpoints(folder: Path) -> Iterator[Path]:
    yield from (path for path in folder.glob("step-*") if _NAME.fullmatch(path.name) and path.is_dir())


def _remove(folders: Iterable[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
