"""Tables and lists of facts, as wide as a terminal where that is possible, aligned for CJK and emoji, too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from posixpath import commonprefix
from unicodedata import category, east_asian_width

from vastrun.launcher.gate.text import one_line

WIDTH = 80
_GAP = "  "
_LEAST = 8
"""No column is cut to less."""


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[int] = (),
    cut: Sequence[int] = (),
    width: int | None = None,
) -> str:
    """Set columns as wide as their widest cell; those numbered in `right` are aligned to the right.

    Where that is more than `width`, the columns numbered in `cut` are cut, one after the other; None: nothing
    is.
    """
    lines = [list(header), *map(list, rows)]
    widths = [max(cells(line[column]) for line in lines) for column in range(len(header))]
    if width is not None:
        # One after the other, and never below its header: the first columns to be cut matter least.
        for column in cut:
            over = sum(widths) + len(_GAP) * (len(widths) - 1) - width
            least = min(widths[column], max(len(header[column]), _LEAST))
            widths[column] = max(least, widths[column] - max(0, over))
    columns = [
        _shortened(column, width) for column, width in zip(zip(*lines, strict=True), widths, strict=True)
    ]
    return "\n".join(_line(line, widths, right) for line in zip(*columns, strict=True))


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Write `name   value` lines; an empty value leaves its line out, a long one keeps its indent."""
    kept = [(name, value) for name, value in pairs if value]
    width = max((cells(name) for name, _ in kept), default=0)
    indent = "\n" + " " * width + _GAP
    return "\n".join(f"{padded(name, width)}{_GAP}{value.replace(chr(10), indent)}" for name, value in kept)


def cells(text: str) -> int:
    """Return how many columns of a terminal the text takes: two for CJK and emoji, none for combining marks.

    The terminal is never given a joiner, nor a selector of variants (gate/text.py).
    """
    if text.isascii():
        return len(text)
    return sum(2 if east_asian_width(c) in "WF" else category(c) not in ("Mn", "Me", "Cf") for c in text)


def short(text: str, width: int | None) -> str:
    """Cut the text to `width` columns of a terminal; None: it is not cut."""
    if width is None or cells(text) <= width:
        return text
    start = text[: max(0, width - 1)]
    while start and cells(start) > width - 1:
        start = start[:-1]
    return start + "…"


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Fill the text with spaces to `width` columns of a terminal; `right`: align it to the right."""
    spaces = " " * (width - cells(text))
    return spaces + text if right else text + spaces


def _shortened(column: Sequence[str], width: int) -> list[str]:
    """Cut the cells of a column; of those that would look alike and are not, the beginning is left out."""
    by_text: dict[str, set[str]] = {}
    for cell in column:
        by_text.setdefault(short(cell, width), set()).add(cell)
    shown = {text: text for text in column}
    for text, different in by_text.items():
        prefix = len(commonprefix(list(different))) if len(different) > 1 else 0
        for cell in different:
            # As much of the end as there is room for, but never less than where they differ.
            start = min(prefix, len(cell) - width + 1)
            shown[cell] = text if len(different) == 1 else short(f"…{cell[start:]}", width)
    return [shown[cell] for cell in column]


def _line(line: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> str:
    columns = enumerate(zip(line, widths, strict=True))
    return _GAP.join(padded(cell, width, right=n in right) for n, (cell, width) in columns).rstrip()


_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""A spreadsheet takes a cell that begins so for a formula; some take the wide forms, too."""


def csv_cell(text: str) -> str:
    """Return the text on one line, with a quote before what would be a formula. A number stays as it is."""
    line = one_line(text)
    return f"'{line}" if line.lstrip().startswith(_FORMULAS) and not _is_number(line) else line


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
