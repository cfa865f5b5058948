"""Tables of fixed columns and lists of facts, at most 80 characters wide where that is possible."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

WIDTH = 80
_GAP = "  "


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """Lines of columns as wide as their widest cell; those numbered in `right` are set to the right."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(_line(line, widths, right) for line in lines)


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """`name   value`, one a line; an empty value leaves its line out, a long one keeps its indent."""
    kept = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in kept), default=0)
    indent = "\n" + " " * width + _GAP
    return "\n".join(f"{name:<{width}}{_GAP}{value.replace(chr(10), indent)}" for name, value in kept)


def short(text: str, width: int) -> str:
    """The text, cut to a width."""
    return text if len(text) <= width else text[: width - 1] + "…"


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> str:
    padded = [
        cell.rjust(width) if column in right else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return _GAP.join(padded).rstrip()
