"""Collecting: everything the box lists comes home, each file checked against its checksum."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from launcher.model import Collected
from launcher.ports import Remote
from launcher.shelf.checkpoints import LATEST, prune
from launcher.shelf.incoming import FOLDER, grow, part_of, whole
from launcher.shelf.manifest import listed
from launcher.shelf.places import IgnoresCase, places
from launcher.shelf.storing import is_home, moved, need_space, place_of, stored
from trainer import layout
from trainer.outcome import FileSum

_UNSUMMED = (
    layout.MANIFEST,
    layout.LEASE_LOG,
    layout.EXIT,
    layout.OUTCOME,
    layout.STEPS,
    layout.STATUS,
    layout.FINAL,
    layout.METRICS,
)
"""Taken as they are when the manifest does not name them; a box that died early has nothing else."""


def collect(out: Path, remote: Remote, disk_ignores_case: IgnoresCase) -> Collected:
    """All but the log, which is pumped."""
    files, refused = listed(whole(remote, layout.MANIFEST))
    wanted = places(out, files, disk_ignores_case)
    others = [path for path in _UNSUMMED if place_of(out, path) not in wanted]
    unsummed = [place_of(out, path) for path in others if stored(place_of(out, path), whole(remote, path))]
    damaged = _bring(out, wanted, remote)
    if not damaged:
        prune(out, wanted)
    home = [place for place in {*wanted, *unsummed, place_of(out, layout.LOG)} if place.is_file()]
    return Collected(
        outcome_json=_text(out, layout.OUTCOME),
        steps_jsonl=_text(out, layout.STEPS),
        exit_code=_exit_code(_text(out, layout.EXIT)),
        files=len(home),
        bytes=sum(place.stat().st_size for place in home),
        damaged=(*damaged, *refused),
        renamed={
            file.path: str(place.relative_to(out))
            for place, file in wanted.items()
            if place != place_of(out, file.path)
        },
    )


def _bring(out: Path, wanted: Mapping[Path, FileSum], remote: Remote) -> list[str]:
    """Everything wanted that is not here yet; the paths of what could not be had whole."""
    missing = {place: file for place, file in wanted.items() if not is_home(place, file)}
    if missing:
        need_space(out, sum(file.size for file in missing.values()) - _size_of(out / FOLDER))
    # The file that names the newest checkpoint comes after it: a machine may be lost in between.
    in_order = sorted(missing.items(), key=lambda item: item[0].name == LATEST)
    damaged = [file.path for place, file in in_order if not _brought(out, place, file, remote)]
    shutil.rmtree(out / FOLDER, ignore_errors=True)
    return damaged


def _brought(out: Path, place: Path, file: FileSum, remote: Remote) -> bool:
    """The file lies at `place` and its checksum holds; tried twice."""
    part = part_of(out, file)
    for _ in range(2):
        grow(part, file, remote, limit=file.size)
        if is_home(part, file) and moved(part, place, out):
            return True
        part.unlink()
    return False


def _size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir()) if folder.is_dir() else 0


def _text(out: Path, path: str) -> str | None:
    place = place_of(out, path)
    return place.read_text(encoding="utf-8", errors="replace") if place.is_file() else None


def _exit_code(text: str | None) -> int | None:
    try:
        return int(text or "")
    except ValueError:
        return None
