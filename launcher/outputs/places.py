"""Places: where each file of a box comes to lie here, no two at one, also on a disk that ignores case."""

from __future__ import annotations

import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from launcher.outputs.folder import place_of
from trainer.contract import layout
from trainer.contract.outcome import FileSum

IgnoresCase = Callable[[Path], bool]


def ignores_case(folder: Path) -> bool:
    """Tell whether the disk takes `a` and `A` for one name, as those of Macs do. Raises OSError."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix="a") as file:
        path = Path(file.name)
        return path.with_name(path.name.upper()).exists()


def places(out: Path, files: Sequence[FileSum], disk_ignores_case: IgnoresCase) -> dict[Path, FileSum]:
    """Map files to where they come to lie. Without the log: it is pumped, and grows after the manifest.

    The second of two that the disk does not tell apart gets a number; so does `code/x` beside
    `run/outputs/x`, and a file beside a folder of its name.
    """
    log = place_of(out, layout.LOG)
    wanted = [(place_of(out, file.path), file) for file in files if file.path != layout.LOG]
    folded = [_folded(place) for place in (log, *(place for place, _ in wanted))]
    different = len(set(folded)) == len(folded) and not _folders(folded)
    # The disk is tried only where it matters: few boxes list two names that fold into one.
    name_of = str if different or not disk_ignores_case(out) else _folded
    own_names = [name_of(log), *(name_of(place) for place, _ in wanted)]
    names, numbers = set(own_names), Counter[str]()
    found: dict[Path, FileSum] = {}
    taken = {name_of(log), *_folders(own_names)}
    for place, file in wanted:
        own = place if name_of(place) not in taken else _numbered(place, name_of, names, numbers)
        names.add(name_of(own))
        taken.add(name_of(own))
        found[own] = file
    return found


def _folded(place: Path) -> str:
    """What such a disk tells names apart by."""
    return unicodedata.normalize("NFC", str(place).casefold())


def _folders(names: Sequence[str]) -> set[str]:
    """Those among the names which others lie in."""
    in_order = sorted(name + "/" for name in names)  # so that what lies in a folder follows it at once
    return {one[:-1] for one, other in pairwise(in_order) if one != other and other.startswith(one)}


def _numbered(place: Path, name_of: Callable[[Path], str], names: set[str], numbers: Counter[str]) -> Path:
    """The place with the first number that makes a name of its own; `numbers`: those that were tried."""
    name, own = name_of(place), place
    while name_of(own) in names:
        numbers[name] += 1
        own = place.with_name(f"{place.name}.{numbers[name]}")
    return own
