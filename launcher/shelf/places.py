"""Places: where each file of a box comes to lie here, no two at one, also on a disk that ignores case."""

from __future__ import annotations

import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
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

    The second of two that the disk does not tell apart gets a number; so does `x` beside `run/x`.
    """
    log = place_of(out, layout.LOG)
    wanted = [(place_of(out, file.path), file) for file in files if file.path != layout.LOG]
    different = len({_folded(place) for place in (log, *(place for place, _ in wanted))}) == len(wanted) + 1
    name_of = str if different or not disk_ignores_case(out) else _folded
    names, numbers = {name_of(log), *(name_of(place) for place, _ in wanted)}, Counter[str]()
    found: dict[Path, FileSum] = {}
    taken = {name_of(log)}
    for place, file in wanted:
        own = place if name_of(place) not in taken else _numbered(place, name_of, names, numbers)
        names.add(name_of(own))
        taken.add(name_of(own))
        found[own] = file
    return found


def _folded(place: Path) -> str:
    """What such a disk tells names apart by."""
    return unicodedata.normalize("NFC", str(place).casefold())


def _numbered(place: Path, name_of: Callable[[Path], str], names: set[str], numbers: Counter[str]) -> Path:
    """The place with the first number that makes a name of its own; `numbers`: those that were tried."""
    name, own = name_of(place), place
    while name_of(own) in names:
        numbers[name] += 1
        own = place.with_name(f"{place.name}.{numbers[name]}")
    return own
