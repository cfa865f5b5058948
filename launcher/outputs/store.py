"""The output store: a run's outputs in a folder of this computer, each checked against its checksum."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from launcher.core import CheckpointCopy, Collected, Fetched, LeftOutFiles, Run
from launcher.core.errors import StorageError
from launcher.gate import caps
from launcher.gate.budget import ExchangeBudget
from launcher.outputs.checkpoints import continue_copy
from launcher.outputs.collecting import collect
from launcher.outputs.fetching import fetch
from launcher.outputs.folder import START_SCRIPT, Outputs
from launcher.outputs.index import Index, contents_of
from launcher.outputs.logcopy import pump
from launcher.outputs.metricscopy import grow_metrics
from launcher.outputs.places import IgnoresCase, ignores_case
from launcher.outputs.storing import claim, must_be_free, need_space, stored, storing
from launcher.ports import ChecksExchange, Remote

Report = Callable[[Run, float], str]
"""The page of a run, as HTML."""
REPORT = "report.html"
PAGE_FAULTS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a bug in a page may raise. What it shows has ended: that must not keep its launcher from going on."""


class FolderStore:
    """A folder a run. `OutputStore` says what each verb promises."""

    def __init__(
        self,
        disk_ignores_case: IgnoresCase = ignores_case,
        index: Index | None = None,
        report: Report | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`index` and `report` write what `describe` puts there; None: nothing. `now`: for its exchanges."""
        self._now = now
        self._disk_ignores_case = disk_ignores_case
        self._index, self._report = index, report

    def must_be_free(self, run: Run) -> None:
        with storing(Path(run.out_dir)):
            must_be_free(Path(run.out_dir), run.id)

    def check(self, run: Run) -> None:
        out = Path(run.out_dir)
        with storing(out):
            out.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=out) as file:
                file.write(b"\0")
            must_be_free(out, run.id)
            claim(out, run.id)
        need_space(out, 0)

    def save_start_script(self, run: Run, text: str) -> None:
        out = Path(run.out_dir)
        with storing(out):
            _write(out, {START_SCRIPT: text})

    def pump(self, run: Run, remote: Remote) -> str:
        out = Path(run.out_dir)
        with storing(out):
            return pump(out, remote, whole_lines=True).decode(errors="replace")

    def save_checkpoint(self, run: Run, remote: Remote, *, limit: int) -> CheckpointCopy | None:
        out = Path(run.out_dir)
        with storing(out):
            budget = self._budget("checkpoint", remote)
            return continue_copy(out, remote, limit, _disk_bytes(run), budget)

    def save_metrics(self, run: Run, remote: Remote) -> int:
        out = Path(run.out_dir)
        with storing(out):
            return grow_metrics(out, remote)

    def collect(self, run: Run, remote: Remote) -> Collected:
        out = Path(run.out_dir)
        with storing(out):
            not_shown = 0
            while part := pump(out, remote, whole_lines=False):
                not_shown += len(part)
            budget = self._budget("outputs", remote)
            collected = collect(out, remote, self._disk_ignores_case, _disk_bytes(run), budget)
            return replace(collected, log_bytes_not_shown=not_shown)

    def fetch(self, run: Run, remote: Remote, path: str | None) -> Fetched:
        out = Path(run.out_dir)
        with storing(out):
            budget = self._budget("outputs", remote)
            return fetch(out, remote, path, self._disk_ignores_case, _disk_bytes(run), budget)

    def left_out(self, run: Run) -> LeftOutFiles:
        return Outputs(run).left_out()

    def describe(self, run: Run, now: float) -> None:
        out = Path(run.out_dir)
        if not Outputs(run).log.is_file():
            return
        with storing(out):
            if self._index is not None:
                _write(out, self._index(run, contents_of(run), now))
            if self._report is not None:
                _write(out, {REPORT: self._page(run, now)})

    def _budget(self, exchange: str, remote: Remote) -> ExchangeBudget:
        """Return the budget of an exchange that begins."""
        allowance = caps.EXCHANGES[exchange]
        if isinstance(remote, ChecksExchange):
            return ExchangeBudget(allowance, check=remote.must_go_on, now=self._now)
        return ExchangeBudget(allowance, now=self._now)

    def _page(self, run: Run, now: float) -> str:
        assert self._report is not None
        try:
            return self._report(run, now)
        except PAGE_FAULTS as fault:
            raise StorageError(f"{REPORT} cannot be made: {type(fault).__name__}: {fault}") from fault


def _write(out: Path, texts: Mapping[str, str]) -> None:
    need_space(out, sum(map(len, texts.values())))
    for name, text in texts.items():
        stored(out / name, text.encode(errors="replace"))


def _disk_bytes(run: Run) -> float:
    """Of its machine, as far as that is known: no box has more to bring home."""
    return math.inf if run.offer is None else run.offer.disk_gb * 1e9
