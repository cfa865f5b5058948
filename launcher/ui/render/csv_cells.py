"""Cells of CSV files: a spreadsheet takes none of them for a formula."""

from __future__ import annotations

from launcher.gate.text import one_line

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
