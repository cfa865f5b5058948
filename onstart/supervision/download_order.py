"""Download order: which files of a snapshot come first over a slow line. Pure; standard library only."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Set
from itertools import accumulate

from vastrun.contract.checkpoint_folder import MIN_BYTES
from vastrun.onstart.supervision.folder_watch import Files, series_of


def named_files(names: Iterable[str], texts: Iterable[bytes]) -> set[str]:
    """Return the names of which the texts have a part with a number, up to one of its dots, as a word."""
    words = {word for text in texts for word in re.findall(r"[\w.+=-]+\b", text.decode(errors="replace"))}
    return {name for name in names if not words.isdisjoint(_parts(name))}


def download_order(files: Files, named: Set[str], older: Collection[str]) -> list[str]:
    """Return small files, those that small ones name, the newest of each series, the rest, and `older` ones.

    Each group has its newest file first.
    """
    by_age = sorted(files, key=lambda name: (-files[name].mtime_ns, name))
    newest = {series_of(name): name for name in reversed(by_age)}

    def group(name: str) -> int:
        is_first = (files[name].size < MIN_BYTES, name in named, newest[series_of(name)] == name, True)
        return 4 if name in older else is_first.index(True)

    return sorted(by_age, key=group)


def _parts(name: str) -> set[str]:
    """Return each folder of a path and its file's name, also without its suffixes, if they have a number."""
    starts = (accumulate(part.split("."), "{}.{}".format) for part in name.split("/"))
    return {start for of_part in starts for start in of_part if re.search(r"\d", start)}
