"""Prometheus metrics of `serve --driver`: totals of its ledger, and its waits for rate limits."""

from __future__ import annotations

import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from math import isfinite
from pathlib import Path
from threading import Lock
from typing import Any

from vastrun.launcher.commands.queries import rows_of
from vastrun.launcher.core import Cause, Phase
from vastrun.launcher.core.batch import Budget, BudgetUse
from vastrun.launcher.core.errors import StorageError, UsageError, VastrunError
from vastrun.launcher.core.verdict import VERDICT_OF
from vastrun.launcher.ledger.signatures import stored_text
from vastrun.launcher.package_files import install_command
from vastrun.launcher.ports import Ledger
from vastrun.launcher.rate_limit_waits import WaitTotal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of Prometheus' text format."""


class PrometheusExporter:
    """Makes the page `metrics`; many threads may call its methods."""

    def __init__(
        self,
        totals: Callable[[], LedgerTotals],
        driven: Callable[[], Mapping[str, int]],
        now: Callable[[], float],
        version: str,
        waits: Callable[[], Mapping[tuple[str, str], WaitTotal]] = dict,
    ) -> None:
        """`driven`: number of runs and batches that this server drives, by kind. `waits`: its waits for rate
        limits, by provider and kind of call.

        Raises UsageError without the package prometheus_client.
        """
        try:
            self._client: Any = import_module("prometheus_client")
            self._core: Any = import_module("prometheus_client.core")
        except ImportError as error:
            raise UsageError(
                "--metrics-port needs prometheus_client, which is not installed",
                hint=install_command("prometheus"),
            ) from error
        self._totals, self._driven, self._waits, self._now = totals, driven, waits, now
        self._lock = Lock()
        self._cached: LedgerTotals | None = None
        self._cached_at = 0.0
        self._registry = self._client.CollectorRegistry()
        self._client.ProcessCollector(registry=self._registry)
        self._client.Info("vastrun_build", "Version of this server.", registry=self._registry).info(
            {"version": version}
        )
        self._registry.register(self)

    def page(self, parts: Sequence[str], _query: str = "") -> str | None:
        """Return the metrics for the address `metrics`; None for any other."""
        if list(parts) != ["metrics"]:
            return None
        text: bytes = self._client.generate_latest(self._registry)
        return text.decode()

    def collect(self) -> Iterator[Any]:
        """Yield the metrics that are read at each scrape, as prometheus_client asks for them."""
        yield self._family(
            "Gauge", "driven", "Runs and batches driven by this server.", self._driven(), "kind"
        )
        waits, labels = self._waits(), ("provider", "call")
        for name, text, values in (
            ("waits", "Calls that waited for a rate limit.", {key: one.waits for key, one in waits.items()}),
            (
                "wait_seconds",
                "Seconds that calls waited for a rate limit.",
                {key: one.seconds for key, one in waits.items()},
            ),
        ):
            yield self._family("Counter", f"rate_limit_{name}", text, values, *labels)
        totals = self._read()
        yield self._family("Gauge", "ledger_up", "1 if the ledger could be read.", {(): int(bool(totals))})
        if totals is not None:
            yield from self._of_ledger(totals)

    def _of_ledger(self, totals: LedgerTotals) -> Iterator[Any]:
        yield self._family("Gauge", "open_runs", "Open runs.", totals.open_runs, "provider", "phase")
        ended = {(VERDICT_OF[cause], cause or "none"): n for cause, n in totals.ended_by_cause.items()}
        yield self._family("Counter", "ended_runs", "Ended runs.", ended, "verdict", "cause")
        yield self._family("Gauge", "machines", "Rented machines.", totals.machines, "provider")
        usd_per_hour = totals.usd_per_hour
        yield self._family("Gauge", "usd_per_hour", "USD per hour of machines.", usd_per_hour, "provider")
        uses = {use.budget.name: use for use in totals.budgets}
        for name, text, amounts in (
            ("limit", "Budget in USD.", {name: use.budget.usd for name, use in uses.items()}),
            ("spent", "USD spent of a budget.", {name: use.spent_usd for name, use in uses.items()}),
            (
                "reserved",
                "USD that open runs may still cost.",
                {n: use.reserved_usd for n, use in uses.items()},
            ),
            ("left", "USD left for further runs.", {name: use.left_usd for name, use in uses.items()}),
        ):
            yield self._family("Gauge", f"budget_{name}_usd", text, amounts, "budget")

    def _read(self) -> LedgerTotals | None:
        """Return the totals, at most some seconds old; None where the ledger cannot be read."""
        with self._lock:
            if self._cached is None or not 0 <= self._now() - self._cached_at < 5.0:
                try:
                    self._cached = self._totals()
                except VastrunError:
                    self._cached = None
                self._cached_at = self._now()
            return self._cached

    def _family(self, kind: str, name: str, text: str, values: Mapping[Any, float], *labels: str) -> Any:
        """Return the metrics of a name, with a number for the text of each label, or for their tuple."""
        family = getattr(self._core, f"{kind}MetricFamily")(f"vastrun_{name}", text, labels=labels)
        for key, number in values.items():
            family.add_metric((key,) if isinstance(key, str) else key, number)
        return family


def load_or_create_token(file: Path) -> str:
    """Return the token in a file that only its user can read; create the file if it does not exist.

    Raises StorageError.
    """
    token = stored_text(file, lambda: secrets.token_urlsafe(32)).strip()
    if len(token) < 32 or not token.isascii():
        raise StorageError(f"{file}: expected a token of at least 32 letters", hint=f"rm {file}")
    return token


@dataclass(frozen=True, kw_only=True)
class LedgerTotals:
    """Totals of one ledger at one moment."""

    open_runs: Mapping[tuple[str, Phase], int]
    """Number of open runs by provider and phase; a run with several nodes counts once."""
    machines: Mapping[str, int]
    """Number of rented machines by provider; slots are none."""
    usd_per_hour: Mapping[str, float]
    """USD per hour of these machines by provider."""
    budgets: Sequence[BudgetUse]
    """The user's budgets, and those of batches with open runs."""
    ended_by_cause: Mapping[Cause | None, int]
    """Number of ended runs by cause; None: those that succeeded."""


def ledger_totals(ledger: Ledger, budgets: Sequence[Budget], now: float) -> LedgerTotals:
    """Read the totals. `budgets`: the user's own. Raises StorageError."""
    runs = ledger.runs(open_only=True)
    nodes = ledger.runs(leader=[run.id for run in runs]) if runs else ()
    rows = rows_of(ledger, [*runs, *nodes], now)
    open_runs: Counter[tuple[str, Phase]] = Counter()
    machines: dict[str, int] = defaultdict(int)
    usd_per_hour: dict[str, float] = defaultdict(float)
    for row in rows:
        provider = row.run.provider
        open_runs[provider, row.run.phase] += 1
        machines[provider] += len(row.rented)
        usd_per_hour[provider] += sum(one.usd_per_hour for one in row.rented)
    names = {run.batch for run in runs if run.batch}
    of_batches = [
        Budget(name=f"batch {batch.name}", usd=batch.spec.limits.usd, batch=batch.name)
        for batch in ledger.batches.all()
        if batch.name in names and batch.spec.limits.usd is not None
    ]
    return LedgerTotals(
        open_runs=open_runs,
        machines=machines,
        usd_per_hour=usd_per_hour,
        budgets=[ledger.use_of(budget) for budget in (*budgets, *of_batches) if isfinite(budget.usd)],
        ended_by_cause=ledger.ended_by_cause(),
    )
