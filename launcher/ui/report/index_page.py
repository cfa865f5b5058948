"""The page of all runs and batches in `vastrun ui`, and the query that selects and sorts them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qsl, quote

from vastrun.launcher.batch.schedule import BatchRow
from vastrun.launcher.commands.queries import RunRow, chains_of
from vastrun.launcher.core import Phase
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.ui.render.amounts import duration, moment, usd
from vastrun.launcher.ui.render.runs import progress_of
from vastrun.launcher.ui.render.verdict import state_of
from vastrun.launcher.ui.report.page import (
    Content,
    Frame,
    Html,
    badge,
    element,
    figures,
    joined,
    note,
    page,
    section,
    shortened,
    table,
)

_RUN_COLUMNS = ("Run", "State", "Job", "Steps", "Began", "Time", "Cost", "Batch", "Machine")
_BATCH_COLUMNS = (
    *("Batch", "State", "Points", "Succeeded", "Failed", "Running", "Waiting"),
    *("Spent", "Budget"),
)
PER_PAGE = 200

Row = TypeVar("Row")


@dataclass(frozen=True, kw_only=True)
class Index:
    """All runs and batches, with the query of the reader."""

    runs: Sequence[RunRow]
    """Open ones first, then the newest."""
    batches: Sequence[BatchRow]
    query: PageQuery
    """Search words and page of the reader."""
    made_at: float


def run_address(run_id: str) -> str:
    """Return the address of a run's page, relative to the list."""
    return f"run/{quote(run_id, safe='')}"


def batch_address(name: str) -> str:
    """Return the address of a batch's page, relative to the list."""
    return f"batch/{quote(name, safe='')}"


def index_page(index: Index, frame: Frame) -> str:
    """Write the page."""
    return page(
        "vastrun",
        _header(index),
        _search(index.query) if index.runs else "",
        section("Batches", _batches(index), name="batches"),
        section("Runs", _runs(index), name="runs"),
        made_at=index.made_at,
        frame=frame,
    )


def _header(index: Index) -> Html:
    open_rows = [row for row in index.runs if row.run.phase is not Phase.ENDED]
    per_hour = sum(machine.usd_per_hour for row in open_rows for machine in row.rented)
    return element(
        "header",
        element("p", "vastrun", class_="brand"),
        element("h1", "Runs and batches"),
        figures(
            [
                ("open now", str(len(open_rows))),
                ("price now", f"{usd(per_hour)}/h" if per_hour else ""),
                ("runs", f"{len(index.runs):,}"),
                ("batches", f"{len(index.batches):,}" if index.batches else ""),
            ]
        ),
    )


def _search(query: PageQuery) -> Html:
    """Write the search form, which requests this page with `?find=`."""
    words = element("input", type="search", id="words", name="find", value=query.find, maxlength=200)
    return element(
        "form",
        element("label", "Find runs and batches", for_="words"),
        words,
        element("button", "Find", type="submit"),
        element("a", "show all", href="./") if query.find else "",
        note("Words of its name, job, state, batch or machine, for example: failed vast"),
        id="find",
        role="search",
    )


def _runs(index: Index) -> Content:
    if not index.runs:
        return note("No runs yet: vastrun launch quickstart.yaml starts one.")
    shown = index.query.of(chains_of(index.runs), lambda chain: " ".join(map(_text_of, chain)))
    if not shown.rows:
        return note("No matching runs.")
    rows = [_run(chain, index.made_at) for chain in shown.rows]
    links = _page_links(shown, index.query)
    listed = table("Runs", _RUN_COLUMNS, rows, right=range(3, 7), sorts=True, class_="results")
    return joined(links if shown.pages > 1 else "", listed, links)


def _page_links(shown: ResultPage[Any], query: PageQuery) -> Content:
    """Write the range of rows, with links to the previous and next page."""
    count = f"{shown.first:,} to {shown.first + len(shown.rows) - 1:,} of {shown.fit:,}"
    if shown.pages == 1:
        return note(count) if query.find else ""
    newer = element("a", "← newer", href=query.address(shown.page - 1)) if shown.page > 1 else ""
    older = element("a", "older →", href=query.address(shown.page + 1)) if shown.page < shown.pages else ""
    return element("p", newer, element("span", count), older, class_="ways")


def _text_of(row: RunRow) -> str:
    """Return the text of a run to search in."""
    run = row.run
    machine = (run.provider, run.host, "" if run.offer is None else run.offer.description)
    return " ".join((run.id, run.job, state_of(row), run.batch, *machine, run.started_by))


def _run(chain: Sequence[RunRow], now: float) -> Html:
    """Write the newest attempt at a job, with links to the earlier ones, and the time and cost of all."""
    row, run = chain[0], chain[0].run
    began, cost = chain[-1].run.created_at, sum(one.usd for one in chain)
    seconds = max(0.0, (run.ended_at or now) - began)
    ends = ((_link(one), f", {state_of(one)}, {usd(one.usd)}") for one in chain[1:])
    earlier = [element("div", "after ", *end, class_="faint") for end in ends]
    batch = element("a", shortened(run.batch), href=batch_address(run.batch)) if run.batch else ""
    cells = (
        _cell(joined(_link(row), *earlier), run.id),
        _cell(badge(row.verdict, state_of(row)), state_of(row)),
        _cell(shortened(run.job)),
        _cell(progress_of(run), run.step, right=True),
        _cell(moment(began), f"{began:.0f}", right=True),
        _cell(duration(seconds), f"{seconds:.1f}", right=True),
        _cell(usd(cost), f"{cost:.6f}", right=True),
        _cell(batch, run.batch),
        _cell("" if run.offer is None else shortened(run.offer.description)),
    )
    return element("tr", *cells)


def _link(row: RunRow) -> Html:
    return element("a", row.run.id, href=run_address(row.run.id))


def _batches(index: Index) -> Content:
    """Write the matching batches, at most a page of the newest."""
    shown = PageQuery(find=index.query.find).of(index.batches, lambda row: row.batch.name)
    if not shown.rows or index.query.page > 1:
        return ""
    left = shown.fit - len(shown.rows)
    more = note(f"{left:,} older batches are not shown; find them by name.") if left else ""
    rows = [_batch(row) for row in shown.rows]
    listed = table("Batches", _BATCH_COLUMNS, rows, right=range(2, 9), sorts=True, class_="results")
    return joined(listed, more)


def _batch(row: BatchRow) -> Html:
    batch, progress = row.batch, row.progress
    state = "running" if row.is_driven else "open" if progress.waiting or progress.running else "ended"
    budget = batch.spec.limits.usd
    numbers = (progress.points, progress.succeeded, progress.failed, progress.running, progress.waiting)
    cells = (
        _cell(element("a", shortened(batch.name), href=batch_address(batch.name)), batch.name),
        _cell(element("span", state.upper(), class_="badge calm"), state),
        *(_cell(str(number), number, right=True) for number in numbers),
        _cell(usd(progress.spent_usd), f"{progress.spent_usd:.6f}", right=True),
        _cell("–" if budget is None else usd(budget), budget or "", right=True),
    )
    return element("tr", *cells)


def _cell(content: Content, key: object = None, *, right: bool = False) -> Html:
    """Write a cell. `key`: sort key, if it differs from the content."""
    sort = None if key is None else str(key)
    return element("td", content, class_="num" if right else None, data_sort=sort)


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
        fit = [row for row in rows if all(word in text_of(row).casefold() for word in words)]
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
        fields = dict(parse_qsl(query, max_num_fields=20))
    except ValueError:
        return PageQuery()
    page = fields.get("page", "")
    is_number = page.isascii() and page.isdecimal() and len(page) <= 9
    find = " ".join(one_line(fields.get("find", "")).split())
    return PageQuery(find=find[:200], page=max(1, int(page)) if is_number else 1)
