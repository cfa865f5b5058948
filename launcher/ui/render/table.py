"""Tables and lists of facts, as wide as a terminal where that is possible."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from posixpath import commonprefix

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
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    if width is not None:
        # One after the other, and never below its header: the first columns to be cut matter least.
        for column in cut:
            over = sum(widths) + len(_GAP) * (len(widths) - 1) - width
            least = min(widths[column], max(len(header[column]), _LEAST))
            widths[column] = max(least, widths[column] - max(0, over))
    columns = [
        _shortened(cells, width) for cells, width in zip(zip(*lines, strict=True), widths, strict=True)
    ]
    return "\n".join(_line(line, widths, right) for line in zip(*columns, strict=True))


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Write `name   value` lines; an empty value leaves its line out, a long one keeps its indent."""
    kept = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in kept), default=0)
    indent = "\n" + " " * width + _GAP
    return "\n".join(f"{name:<{width}}{_GAP}{value.replace(chr(10), indent)}" for name, value in kept)


def short(text: str, width: int | None) -> str:
    """Cut the text to a width; None: it is not cut."""
    return text if width is None or len(text) <= width else text[: width - 1] + "…"


def _shortened(cells: Sequence[str], width: int) -> list[str]:
    """Cut the cells of a column; of those that would look alike and are not, the beginning is left out."""
    by_text: dict[str, set[str]] = {}
    for cell in cells:
        by_text.setdefault(short(cell, width), set()).add(cell)
    shown = {text: text for text in cells}
    for text, different in by_text.items():
        prefix = len(commonprefix(list(different))) if len(different) > 1 else 0
        for cell in different:
            # As much of the end as there is room for, but never less than where they differ.
            start = min(prefix, len(cell) - width + 1)
            shown[cell] = text if len(different) == 1 else short(f"…{cell[start:]}", width)
    return [shown[cell] for cell in cells]


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> str:
    padded = [
        cell.rjust(width) if column in right else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return _GAP.join(padded).rstrip()
