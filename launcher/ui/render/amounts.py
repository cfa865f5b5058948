"""Amounts as text, and tables and lists of facts that fit a terminal, aligned also with CJK and emoji."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Sequence
from posixpath import commonprefix
from textwrap import wrap
from unicodedata import category, east_asian_width

from vastrun.contract.texts import how_many
from vastrun.launcher.core import LeftOutFiles
from vastrun.launcher.core.left_out import bytes_text
from vastrun.launcher.decisions.estimates import usd as usd
from vastrun.launcher.gate.text import one_line

WIDTH = 80
_GAP = "  "
_NAME = re.compile(r"\S+(?: \S+)*? {2,}| *")
"""Matches the name of a fact with the gap behind it, or an indentation."""
_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Prefixes that spreadsheets take for a formula; some also accept the full-width forms."""


def duration(seconds: float) -> str:
    """Write seconds as `4.2s`, `1m 32s`, `2h 05m`, `3d 04h`."""
    seconds = max(0.0, seconds)
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h {minutes:02}m"
    days, hours = divmod(hours, 24)
    return f"{days}d {hours:02}h"


def rough(seconds: float) -> str:
    """Write approximate seconds: `40s`, `12m`, `2h 05m`, `3d 04h`."""
    if seconds < 57.5:
        return f"{max(5, round(seconds / 5) * 5)}s"
    return f"{round(seconds / 60)}m" if seconds < 3570 else duration(seconds)


def usd_sum(amounts: Iterable[float]) -> str:
    """Write the sum of the amounts as shown, each rounded to a tenth of a cent, so that it adds up."""
    return f"${sum(map(_mills, amounts)) / 1000:.3f}"


def usd_parts(parts: Sequence[float], usd: float | None = None) -> list[float]:
    """Round the parts to a tenth of a cent so that they add up to their sum as it is shown.

    Uses the method of the largest remainders. `usd`: the sum to reach, if it is the sum of other parts, too.
    """
    whole = [math.floor(part * 1000) for part in parts]
    lacking = max(0, _mills(sum(parts) if usd is None else usd) - sum(whole))
    by_cut = sorted(range(len(parts)), key=lambda n: whole[n] - parts[n] * 1000)
    for number in by_cut[:lacking]:
        whole[number] += 1
    return [mills / 1000 for mills in whole]


def _mills(amount: float) -> int:
    return round(amount * 1000)


def moment(at: float) -> str:
    """Write the local time, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def left_out_lines(left_out: LeftOutFiles) -> str:
    """Write a line for each of the first files, and one for the rest; empty without files."""
    if not left_out.count:
        return ""
    shown = left_out.files[:20]
    sizes = [bytes_text(file.size) if file.size else "" for file in shown]
    width = max((len(size) for size in sizes), default=0)
    files = how_many(left_out.count, "file")
    size_text = f", {bytes_text(left_out.bytes)}" if left_out.bytes else ""
    lines = [f"{files}{size_text}, not downloaded"]
    lines += [f"{size:>{width}}  {file.path} ({file.why})" for size, file in zip(sizes, shown, strict=True)]
    if left_out.count > len(shown):
        lines.append(f"{'':>{width}}  and {left_out.count - len(shown)} more")
    return "\n".join(lines)


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[int] = (),
    cut: Sequence[int] = (),
    width: int | None = None,
) -> str:
    """Write a table with columns as wide as their widest cell; `right`: numbers of right-aligned columns.

    If it exceeds `width`, cut the columns numbered in `cut`, one after the other; None: cut nothing.
    """
    lines = [list(header), *map(list, rows)]
    widths = [max(cells(line[column]) for line in lines) for column in range(len(header))]
    if width is not None:
        # Never below the header's width; the first columns in `cut` matter least.
        for column in cut:
            over = sum(widths) + len(_GAP) * (len(widths) - 1) - width
            minimum = min(widths[column], max(len(header[column]), 8))
            widths[column] = max(minimum, widths[column] - max(0, over))
    columns = map(_shortened, zip(*lines, strict=True), widths)
    return "\n".join(_line(line, widths, right) for line in zip(*columns, strict=True))


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Write `name   value` lines; empty values are left out, further lines of a value are indented."""
    shown = [(name, value) for name, value in pairs if value]
    width = max((cells(name) for name, _ in shown), default=0)
    indent = "\n" + " " * width + _GAP
    return "\n".join(f"{padded(name, width)}{_GAP}{value.replace(chr(10), indent)}" for name, value in shown)


def wrapped(text: str, width: int) -> str:
    """Break long lines at spaces; one with a command stays whole, to be copied."""
    lines = list[str]()
    for line in text.split("\n"):
        indent = len(_NAME.match(line)[0])  # type: ignore[index]
        if cells(line) <= width or "vastrun " in line or indent > width / 2:
            lines.append(line)
        else:
            lines += wrap(
                line, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
            )
    return "\n".join(lines)


def cells(text: str) -> int:
    """Return the columns of a text on a terminal: two for CJK and emoji, none for combining marks.

    The terminal is never given a joiner, nor a selector of variants (gate/text.py).
    """
    if text.isascii():
        return len(text)
    return sum(2 if east_asian_width(c) in "WF" else category(c) not in ("Mn", "Me", "Cf") for c in text)


def short(text: str, width: int | None) -> str:
    """Cut the text to `width` columns of a terminal; None: do not cut."""
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
    """Cut the cells of a column; different cells that would look the same lose their start instead."""
    by_text: dict[str, set[str]] = {}
    for cell in column:
        by_text.setdefault(short(cell, width), set()).add(cell)
    shown = {text: text for text in column}
    for text, different in by_text.items():
        prefix = len(commonprefix(list(different))) if len(different) > 1 else 0
        for cell in different:
            # Show as much of the end as fits, but at least from where the cells differ.
            start = min(prefix, len(cell) - width + 1)
            shown[cell] = text if len(different) == 1 else short(f"…{cell[start:]}", width)
    return [shown[cell] for cell in column]


def _line(line: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> str:
    columns = enumerate(zip(line, widths, strict=True))
    return _GAP.join(padded(cell, width, right=n in right) for n, (cell, width) in columns).rstrip()


def csv_cell(text: str) -> str:
    """Return the text on one line, with a quote before a formula; numbers are unchanged."""
    line = one_line(text)
    if not line.lstrip().startswith(_FORMULAS):
        return line
    try:
        float(line)
    except ValueError:
        return f"'{line}"
    return line
