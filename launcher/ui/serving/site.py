"""Site: which page an address shows, made of the ledger and the outputs as they are. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock

from vastrun.launcher.batch.report import batch_report_of
from vastrun.launcher.batch.results import row_in
from vastrun.launcher.commands.queries import all_rows
from vastrun.launcher.commands.report import report_of
from vastrun.launcher.core import Phase
from vastrun.launcher.core.errors import NoSuchRunError, UsageError
from vastrun.launcher.ports import Ledger
from vastrun.launcher.ui.report.batch_page import batch_page
from vastrun.launcher.ui.report.index_page import Index, index_page, run_address
from vastrun.launcher.ui.report.page import Frame
from vastrun.launcher.ui.report.run_page import run_page
from vastrun.launcher.ui.report.wanted import Wanted, wanted_in

REFRESH_S = 3
"""Between two looks of a browser; more where a page takes long to make."""
_SHARE = 20
"""A page is made no more often than takes a part in so many of the time,"""
_LONGEST_S = 60.0
"""but is never older than this: a busy computer makes it slowly once."""
_FRESH_S = 1.0
"""So long a page is shown again as it was made: several tabs cost no more than one."""
_KEPT = 50
"""Pages, at most."""


@dataclass(frozen=True, kw_only=True)
class _Made:
    text: str
    at: float


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """A page that was asked for."""

    kind: str
    name: str
    """Of the run or the batch; empty: the list."""
    wanted: Wanted


class Site:
    """`page` is called by many threads; one page is made at a time."""

    def __init__(
        self, ledger: Callable[[], Ledger], now: Callable[[], float], refresh_s: float = REFRESH_S
    ) -> None:
        self._ledger, self._now, self._refresh_s = ledger, now, refresh_s
        self._lock = Lock()
        self._made: dict[_Asked, _Made] = {}
        self._took_s: dict[str, float] = {}

    def page(self, parts: Sequence[str], query: str = "") -> str | None:
        """Return the page at an address; None: there is none.

        `parts`: the words between its slashes. `query`: what stands behind its `?`.
        """
        kind, maker = _kind(parts)
        asked = _Asked(name=parts[-1] if parts else "", kind=kind, wanted=wanted_in(query))
        if maker is None:
            return None
        with self._lock:
            known = self._made.get(asked)
            if known is not None and 0 <= self._now() - known.at < _FRESH_S:
                return known.text
            began = time.perf_counter()
            spared_s = min(_LONGEST_S, round(_SHARE * self._took_s.get(kind, 0.0), 1))
            refresh_s = max(self._refresh_s, spared_s)
            try:
                text = maker(self, asked, refresh_s)
            except (NoSuchRunError, UsageError):
                return None
            self._took_s[kind] = time.perf_counter() - began
            if len(self._made) >= _KEPT:
                self._made.clear()
            self._made[asked] = _Made(text=text, at=self._now())
            return text

    def index(self, asked: _Asked, refresh_s: float) -> str:
        """Write the list of batches and runs: those that are wanted."""
        ledger, now = self._ledger(), self._now()
        batches = [row_in(ledger, batch.name, now) for batch in ledger.batches.all()]
        index = Index(runs=all_rows(ledger, now), batches=batches, wanted=asked.wanted, made_at=now)
        return index_page(index, Frame(refresh_s=refresh_s, has_form=True))

    def run(self, asked: _Asked, refresh_s: float) -> str:
        """Write the page of a run; of one that has ended nothing changes any more."""
        ledger, now = self._ledger(), self._now()
        run = ledger.get(asked.name)
        over = run.phase is Phase.ENDED
        frame = Frame(home="../", refresh_s=None if over else refresh_s)
        return run_page(
            report_of(ledger, run, now), frame, address_of=lambda run: f"../{run_address(run.id)}"
        )

    def batch(self, asked: _Asked, refresh_s: float) -> str:
        """Write the page of a batch."""
        report = batch_report_of(self._ledger(), asked.name, self._now())
        goes_on = report.progress.running or report.progress.waiting
        frame = Frame(home="../", refresh_s=refresh_s if goes_on else self._refresh_s * _SHARE)
        return batch_page(report, lambda run: f"../{run_address(run.id)}", frame)


Maker = Callable[[Site, _Asked, float], str]
_MAKERS: Mapping[str, Maker] = {"": Site.index, "run": Site.run, "batch": Site.batch}
"""By the first word of an address."""


def _kind(parts: Sequence[str]) -> tuple[str, Maker | None]:
    """What an address shows: `` the list, `run/ID` and `batch/NAME`."""
    kind = parts[0] if parts else ""
    fits = len(parts) == (2 if kind else 0)
    return kind, _MAKERS.get(kind) if fits else None
