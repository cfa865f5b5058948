"""Places: where each file of a box comes to lie here, no two at one, also on a disk that ignores case."""

from __future__ import annotations

import itertools
import tempfile
import unicodedata
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from launcher.shelf.storing import place_of
from trainer import layout
from trainer.outcome import FileSum

IgnoresCase = Callable[[Path], bool]


def ignores_case(folder: Path) -> bool:
    """Whether the disk takes `a` and `A` for one name, as those of Macs do. Raises OSError."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix="a") as file:
        path = Path(file.name)
        return path.with_name(path.name.upper()).exists()


def places(out: Path, files: Sequence[FileSum], disk_ignores_case: IgnoresCase) -> dict[Path, FileSum]:
    """Files by where they come to lie. Without the log: it is pumped, and grows after the manifest.

    The second of two that the disk does not tell apart gets a number.
    """
    own: dict[str, tuple[Path, FileSum]] = {}
    others = []
    for file in files:
        if file.path == layout.LOG:
            continue
        place = place_of(out, file.path)
        key = _folded(place)
        if key in own or key == _folded(place_of(out, layout.LOG)):
            others.append((place, file))
        else:
            own[key] = (place, file)
    if not others or not disk_ignores_case(out):
        return {place_of(out, file.path): file for file in files if file.path != layout.LOG}
    for place, file in others:
        numbered = _numbered(place, own)
        own[_folded(numbered)] = (numbered, file)
    return dict(own.values())


def _folded(place: Path) -> str:
    """What such a disk tells names apart by."""
    return unicodedata.normalize("NFC", str(place).casefold())


def _numbered(place: Path, taken: Collection[str]) -> Path:
    names = (place.with_name(f"{place.name}.{number}") for number in itertools.count(1))
    return next(name for name in names if _folded(name) not in taken)
