"""Checkpoints: a folder that is there whole or not at all, with a manifest that proves it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from trainer.outcome import FileSum
from trainer.records import read_as, write_json

STATE = "state.pt"
MANIFEST = "manifest.json"
LATEST = "latest.json"

_NAME = re.compile(r"step-(\d{6,})")


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a checkpoint holds; paths relative to its folder."""

    step: int
    files: tuple[FileSum, ...]


@dataclass(frozen=True, kw_only=True)
class Latest:
    """What `latest.json` says."""

    step: int
    path: str
    """The checkpoint's folder, relative to the one that holds `latest.json`."""


class DamagedError(Exception):
    """A checkpoint is not what its manifest says."""


class Checkpoints:
    """The checkpoints of one run, in one folder. Only rank 0 saves; every rank may load."""

    def __init__(self, folder: Path, *, keep: int) -> None:
        self._folder = folder
        self._keep = keep

    def save(self, step: int, state: Mapping[str, Any]) -> Path:
        """The state after `step` steps is on disk. Older ones go, the last `keep` stay.

        An OSError (such as a full disk) leaves the checkpoints that were there as they were.
        """
        final = self._folder / f"step-{step:06d}"
        if not final.exists():
            self._sweep()
            part = self._folder / f".{final.name}.part"
            try:
                _write(part, step, state)
                part.rename(final)
            finally:
                shutil.rmtree(part, ignore_errors=True)
            _sync(self._folder)
        write_json(self._folder / LATEST, asdict(Latest(step=step, path=final.name)))
        for old in [path for path in _newest_first(self._folder) if path != final][self._keep - 1 :]:
            shutil.rmtree(old, ignore_errors=True)
        return final

    def _sweep(self) -> None:
        for part in self._folder.glob(".step-*.part"):
            shutil.rmtree(part)


def load_newest(folders: tuple[Path, ...], device: torch.device) -> tuple[dict[str, Any] | None, list[str]]:
    """The newest state that is intact, from the first folder that has one, and a line for each that is not.

    None when there is no checkpoint at all. Raises DamagedError when there are some and none is intact.
    """
    damaged: list[str] = []
    for folder in folders:
        for path in _newest_first(folder):
            try:
                return load(path, device), damaged
            except DamagedError as error:
                damaged.append(f"{error}; trying an older one")
    if damaged:
        raise DamagedError("no checkpoint is intact: " + "; ".join(damaged))
    return None, []


def load(path: Path, device: torch.device) -> dict[str, Any]:
    """The state in a checkpoint's folder, after its checksums were compared. Raises DamagedError."""
    verify(path)
    state: dict[str, Any] = torch.load(path / STATE, map_location=device, weights_only=True)
    return state


def verify(path: Path) -> Manifest:
    """The manifest of a checkpoint whose files all hold. Raises DamagedError."""
    try:
        manifest = read_as(Manifest, json.loads((path / MANIFEST).read_text(encoding="utf-8")))
        for file in manifest.files:
            if _sum_of(path / file.path, file.path) != file:
                raise DamagedError(f"{path.name}/{file.path} is not what its manifest says")
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise DamagedError(f"{path.name} cannot be read: {error}") from error
    assert isinstance(manifest, Manifest)
    return manifest


def _write(part: Path, step: int, state: Mapping[str, Any]) -> None:
    part.mkdir(parents=True)
    with (part / STATE).open("wb") as file:
        torch.save(dict(state), file)
        file.flush()
        os.fsync(file.fileno())
    write_json(part / MANIFEST, asdict(Manifest(step=step, files=(_sum_of(part / STATE, STATE),))))
    _sync(part)


def _sum_of(path: Path, name: str) -> FileSum:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return FileSum(path=name, size=path.stat().st_size, sha256=digest)


def _newest_first(folder: Path) -> list[Path]:
    return [path for _, path in sorted(_steps(folder), reverse=True)]


def _steps(folder: Path) -> Iterator[tuple[int, Path]]:
    for path in folder.glob("step-*"):
        if match := _NAME.fullmatch(path.name):
            yield int(match[1]), path


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
