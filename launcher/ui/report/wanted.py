"""Wanted: which rows of a long list its reader wants to see, as the address of the page says it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import parse_qsl, quote

from vastrun.launcher.gate.text import one_line

PER_PAGE = 200
_CHARACTERS = 200
"""Of what is looked for."""
_DIGITS = 9
"""Of a page's number."""
_FIELDS = 20
"""In an address; more are refused."""

Row = TypeVar("Row")


@dataclass(frozen=True, kw_only=True)
class Shown(Generic[Row]):
    """One page of the rows that fit."""

    rows: Sequence[Row]
    page: int
    """From 1."""
    pages: int
    fit: int
    """Rows, on all pages."""

    @property
    def first(self) -> int:
        """The number of its first row, from 1."""
        return 1 + (self.page - 1) * PER_PAGE


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a reader asked for."""

    find: str = ""
    """Words, each of which is in a row that fits, whatever the case of its letters."""
    page: int = 1

    def of(self, rows: Sequence[Row], text_of: Callable[[Row], str]) -> Shown[Row]:
        """Return the page; the last one, where there are not so many."""
        words = self.find.casefold().split()
        fit = [row for row in rows if _has(words, text_of(row))] if words else rows
        pages = max(1, -(-len(fit) // PER_PAGE))
        page = min(self.page, pages)
        return Shown(rows=fit[(page - 1) * PER_PAGE : page * PER_PAGE], page=page, pages=pages, fit=len(fit))

    def address(self, page: int) -> str:
        """Return the address of another page of the same rows, from the list."""
        find = f"find={quote(self.find, safe='')}&" if self.find else ""
        return f"?{find}page={page}"


def wanted_in(query: str) -> Wanted:
    """Read the part of an address behind its `?`; what is not understood is left out."""
    try:
        fields = dict(parse_qsl(query, max_num_fields=_FIELDS))
    except ValueError:
        return Wanted()
    page = fields.get("page", "")
    is_number = page.isascii() and page.isdecimal() and len(page) <= _DIGITS
    find = " ".join(one_line(fields.get("find", "")).split())
    return Wanted(find=find[:_CHARACTERS], page=max(1, int(page)) if is_number else 1)


def _has(words: Sequence[str], text: str) -> bool:
    text = text.casefold()
    return all(word in text for word in words)
