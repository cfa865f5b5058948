"""Download order: which files of a snapshot come first over a slow line. Pure; standard library only."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Set
from itertools import accumulate

from vastrun.contract.checkpoint_folder import MIN_BYTES
from vastrun.onstart.supervision.folder_watch import Files, series_of


def named_files(names: Iterable[str], texts: Iterable[bytes]) -> set[str]:
    """Return the names of which a text has a folder, or the file up to a dot, as a word with a digit."""
    found = (re.findall(r"[\w.+=-]+", text.decode(errors="replace")) for text in texts)
    words = {word.rstrip(".+=-") for of_text in found for word in of_text if any(map(str.isdigit, word))}
    return {
        name
        for name in names
        if not all(words.isdisjoint(accumulate(part.split("."), "{}.{}".format)) for part in name.split("/"))
    }


def download_order(files: Files, named: Set[str], older: Collection[str]) -> list[str]:
    """Return small files, those that small ones name, the newest of each series, the rest, and `older` ones.

    Each group has its newest file first.
    """
    by_age = sorted(files, key=lambda name: files[name].mtime_ns, reverse=True)
    newest = {series_of(name): name for name in reversed(by_age)}

    def group(name: str) -> int:
        is_first = (files[name].size < MIN_BYTES, name in named, newest[series_of(name)] == name, True)
        return 4 if name in older else is_first.index(True)

    return sorted(by_age, key=group)
