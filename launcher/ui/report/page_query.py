"""Page query: the search words and page number of a long list, from the address of the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import parse_qsl, quote

from vastrun.launcher.gate.text import one_line

PER_PAGE = 200
_MAX_SEARCH_CHARACTERS = 200
_MAX_PAGE_DIGITS = 9
_MAX_FIELDS = 20
"""Maximum fields of an address; more make it invalid."""

Row = TypeVar("Row")


@dataclass(frozen=True, kw_only=True)
class ResultPage(Generic[Row]):
    """One page of the matching rows."""

    rows: Sequence[Row]
    page: int
    """Number of the page, from 1."""
    pages: int
    fit: int
    """Number of matching rows on all pages."""

    @property
    def first(self) -> int:
        """Number of its first row, from 1."""
        return 1 + (self.page - 1) * PER_PAGE


@dataclass(frozen=True, kw_only=True)
class PageQuery:
    """The query of a reader."""

    find: str = ""
    """Search words; a matching row contains all of them, in any case."""
    page: int = 1

    def of(self, rows: Sequence[Row], text_of: Callable[[Row], str]) -> ResultPage[Row]:
        """Return the requested page of the matching rows, at most the last one."""
        words = self.find.casefold().split()
        fit = [row for row in rows if _has(words, text_of(row))] if words else rows
        pages = max(1, -(-len(fit) // PER_PAGE))
        page = min(self.page, pages)
        return ResultPage(
            rows=fit[(page - 1) * PER_PAGE : page * PER_PAGE], page=page, pages=pages, fit=len(fit)
        )

    def address(self, page: int) -> str:
        """Return the relative address of another page of the same query."""
        find = f"find={quote(self.find, safe='')}&" if self.find else ""
        return f"?{find}page={page}"


def parse_query(query: str) -> PageQuery:
    """Parse the query string of an address; invalid parts are ignored."""
    try:
        fields = dict(parse_qsl(query, max_num_fields=_MAX_FIELDS))
    except ValueError:
        return PageQuery()
    page = fields.get("page", "")
    is_number = page.isascii() and page.isdecimal() and len(page) <= _MAX_PAGE_DIGITS
    find = " ".join(one_line(fields.get("find", "")).split())
    return PageQuery(find=find[:_MAX_SEARCH_CHARACTERS], page=max(1, int(page)) if is_number else 1)


def _has(words: Sequence[str], text: str) -> bool:
    text = text.casefold()
    return all(word in text for word in words)
