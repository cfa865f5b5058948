"""Site: makes the page of an address from the ledger and the outputs. Read-only."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock

from vastrun.launcher.batch.results import batch_report_of, row_in
from vastrun.launcher.commands.queries import all_rows
from vastrun.launcher.commands.report import report_of
from vastrun.launcher.core import Phase
from vastrun.launcher.core.errors import NoSuchRunError, UsageError
from vastrun.launcher.ports import Ledger
from vastrun.launcher.ui.report.batch_page import batch_page
from vastrun.launcher.ui.report.index_page import Index, PageQuery, index_page, parse_query, run_address
from vastrun.launcher.ui.report.page import Frame
from vastrun.launcher.ui.report.run_page import run_page

REFRESH_S = 3
"""Seconds between two refreshes of a browser; more for a page that takes long to make."""
_INTERVAL_FACTOR = 20
"""Minimum refresh interval of a page as a multiple of the time to make it,"""
_MAX_INTERVAL_S = 60.0
"""but never longer than this: a page may be slow only because the computer was busy."""
_CACHE_S = 1.0
"""Seconds for which a page is cached: several tabs cost as much as one."""
_MAX_CACHED = 50
"""Maximum number of cached pages."""


@dataclass(frozen=True, kw_only=True)
class _CachedPage:
    text: str
    at: float


@dataclass(frozen=True, kw_only=True)
class _PageRequest:
    """A request for a page."""

    kind: str
    name: str
    """Name of the run or batch; empty for the list."""
    query: PageQuery


class Site:
    """Makes pages, one at a time; `page` is called by many threads."""

    def __init__(
        self, ledger: Callable[[], Ledger], now: Callable[[], float], refresh_s: float = REFRESH_S
    ) -> None:
        self._ledger, self._now, self._refresh_s = ledger, now, refresh_s
        self._lock = Lock()
        self._cache: dict[_PageRequest, _CachedPage] = {}
        self._took_s: dict[str, float] = {}

    def page(self, parts: Sequence[str], query: str = "") -> str | None:
        """Return the page of an address, or None.

        `parts`: its path segments. `query`: the part after its `?`.
        """
        kind, maker = _kind(parts)
        request = _PageRequest(name=parts[-1] if parts else "", kind=kind, query=parse_query(query))
        if maker is None:
            return None
        with self._lock:
            known = self._cache.get(request)
            if known is not None and 0 <= self._now() - known.at < _CACHE_S:
                return known.text
            began = time.perf_counter()
            min_interval_s = min(_MAX_INTERVAL_S, round(_INTERVAL_FACTOR * self._took_s.get(kind, 0.0), 1))
            refresh_s = max(self._refresh_s, min_interval_s)
            try:
                text = maker(self, request, refresh_s)
            except (NoSuchRunError, UsageError):
                return None
            self._took_s[kind] = time.perf_counter() - began
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            self._cache[request] = _CachedPage(text=text, at=self._now())
            return text

    def index(self, request: _PageRequest, refresh_s: float) -> str:
        """Write the list of the requested batches and runs."""
        ledger, now = self._ledger(), self._now()
        batches = [row_in(ledger, batch.name, now) for batch in ledger.batches.all()]
        index = Index(runs=all_rows(ledger, now), batches=batches, query=request.query, made_at=now)
        return index_page(index, Frame(refresh_s=refresh_s, has_form=True))

    def run(self, request: _PageRequest, refresh_s: float) -> str:
        """Write the page of a run; that of an ended run is final."""
        ledger, now = self._ledger(), self._now()
        run = ledger.get(request.name)
        over = run.phase is Phase.ENDED
        frame = Frame(home="../", refresh_s=None if over else refresh_s)
        return run_page(
            report_of(ledger, run, now), frame, address_of=lambda run: f"../{run_address(run.id)}"
        )

    def batch(self, request: _PageRequest, refresh_s: float) -> str:
        """Write the page of a batch."""
        report = batch_report_of(self._ledger(), request.name, self._now())
        is_open = report.progress.running or report.progress.waiting
        frame = Frame(home="../", refresh_s=refresh_s if is_open else self._refresh_s * _INTERVAL_FACTOR)
        return batch_page(report, lambda run: f"../{run_address(run.id)}", frame)


Maker = Callable[[Site, _PageRequest, float], str]
_MAKERS: Mapping[str, Maker] = {"": Site.index, "run": Site.run, "batch": Site.batch}
"""Page makers by the first segment of an address."""


def _kind(parts: Sequence[str]) -> tuple[str, Maker | None]:
    """Return the kind and the maker of an address: `` is the list, `run/ID` and `batch/NAME` are pages."""
    kind = parts[0] if parts else ""
    fits = len(parts) == (2 if kind else 0)
    return kind, _MAKERS.get(kind) if fits else None
