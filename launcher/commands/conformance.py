"""A conformance run: a small job takes the whole road, and the service is compared with what is assumed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from vastrun.launcher.core import Run
from vastrun.launcher.core.bills import cost_usd, counted_of, max_cost_usd
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.verdict import EXIT_CODE_OF, EXIT_DEVIATES, EXIT_TEARDOWN_NOT_CONFIRMED, Verdict
from vastrun.launcher.package_files import configs_dir
from vastrun.launcher.ports import Provider
from vastrun.launcher.providers.vast import VastProvider, account
from vastrun.launcher.providers.vast.conformance.after_run import AfterRun
from vastrun.launcher.providers.vast.conformance.assumption import Comparison, State, Value, When, compare
from vastrun.launcher.providers.vast.conformance.assumptions import ASSUMPTIONS
from vastrun.launcher.providers.vast.conformance.observations import charges_of, number_of, seen_in
from vastrun.launcher.providers.vast.conformance.observed_vast import ObservedVast, ProbeLevel
from vastrun.launcher.providers.vast.conformance.record import Record
from vastrun.launcher.providers.vast.conformance.recorder import ApiRecorder

JOB = "conformance.yaml"
MAX_RUN_S = 600.0
"""No machine is kept for longer, loading included."""
SETTLEMENT_S = 900.0
"""Seconds after the end when charges are expected to be listed."""


@dataclass(frozen=True, kw_only=True)
class ConformanceReport:
    """Result of a conformance run."""

    record: Record
    comparisons: Sequence[Comparison]

    @property
    def deviating(self) -> Sequence[Comparison]:
        """The rows in which the service is not as assumed."""
        return [one for one in self.comparisons if one.state is State.DEVIATES]

    @property
    def unseen(self) -> Sequence[Comparison]:
        """The rows that were to be seen by now, and were not."""
        settled = self.record.billed_usd is not None
        return [
            one
            for one in self.comparisons
            if one.state is State.NOT_SEEN
            and (settled or one.assumption.when is When.RENT)
            and (not one.assumption.follows or one.assumption.follows in self.record.seen)
        ]

    @property
    def exit_code(self) -> int:
        """A machine that may be there comes first, then what deviates, then how the run ended."""
        if self.record.exit_code == EXIT_TEARDOWN_NOT_CONFIRMED:
            return EXIT_TEARDOWN_NOT_CONFIRMED
        if self.deviating:
            return EXIT_DEVIATES
        return self.record.exit_code or (EXIT_CODE_OF[Verdict.UNKNOWN] if self.unseen else 0)


def conformance_job(usd: float, gpus: int, sets: Sequence[str], now: float) -> JobSpec:
    """Return the job, with its limits. Raises JobFileError."""
    from vastrun.launcher.config.job_loader import load_job  # slow to import: pydantic, yaml

    path = configs_dir() / JOB
    deadline = datetime.fromtimestamp(now + MAX_RUN_S, UTC).isoformat(timespec="seconds")
    overrides = (f"limits.usd={usd!r}", f"resources.gpus={gpus}", f"limits.deadline='{deadline}'")
    text = path.read_text(encoding="utf-8")
    return load_job(text, str(path), [*overrides, *sets], str(path.parent), datetime.fromtimestamp(now, UTC))


class ConformanceRun:
    """One conformance run, from before its order until its report."""

    def __init__(self, provider: Provider, thorough: ProbeLevel, stopping: Callable[[], bool]) -> None:
        """`stopping`: the user wants an end. Raises UsageError for a provider without assumptions."""
        self._vast = require_vast(provider)
        self._recorder = ApiRecorder()
        self._thorough = thorough
        self._stopping = stopping
        self.provider = ObservedVast(self._vast, self._recorder, thorough, stopping)
        """Provider that records each answer while the run is driven."""

    def check_after_run(self) -> None:
        """Look at what costs nothing once the run is over."""
        watch_s = self._thorough.watch_s
        AfterRun(vast=self._vast, recorder=self._recorder, watch_s=watch_s, stopping=self._stopping).look()

    def report(self, run: Run | None, began: float, now: float) -> ConformanceReport:
        """Compare what was seen with what is assumed; `run` is None where no offer fitted."""
        seen, base = seen_in(self._recorder), Record(began_at=began, ended_at=now)
        if run is None:
            return report_of(replace(base, exit_code=EXIT_CODE_OF[Verdict.NO_OFFER], seen=seen))
        alone = replace(run, rentals=())
        return report_of(
            Record(
                run=run.id,
                instance=self._recorder.instance_id,
                machine="" if run.offer is None else run.offer.description[:200],
                began_at=began,
                ended_at=run.ended_at or now,
                verdict="" if run.verdict is None else run.verdict.value,
                exit_code=run.exit_code(),
                counted=counted_of(alone, now),
                tail_usd=max_cost_usd(alone, now) - cost_usd(alone, now),
                run_usd=cost_usd(run, now),
                seen=seen,
                trials={one: name for one, name in self._recorder.rented.items() if name != "run"},
            )
        )


def settled(record: Record, provider: Provider, now: float) -> Record:
    """Return the record with what was charged for its machine by now.

    Raises AuthError, ProviderError; UsageError where no machine was rented.
    """
    if not record.instance:
        raise UsageError(f"{record.run} rented no machine", hint="vastrun doctor --rent")
    vast, recorder = require_vast(provider), ApiRecorder()
    recorder.begin(record.instance, record.began_at)
    vast.api.record(recorder.record)
    everything = account.charges_of(vast.api, record.began_at, now)
    charges = [one for one in everything if one.instance_id == record.instance]
    if not charges:
        return record
    trials_usd = sum(one.usd for one in everything if one.instance_id in record.trials)
    recorder.measured |= _charged(recorder, record)
    billed_usd = sum(charge.usd for charge in charges)
    if record.counted.usd > 0:
        recorder.measured["charge.total"] = _ratio(billed_usd, record.counted.usd, record)
    bill = {name: value for name, value in seen_in(recorder).items() if ASSUMPTIONS[name].when is When.SETTLE}
    seen = {**record.seen, **bill}
    return replace(record, billed_usd=billed_usd, trials_billed_usd=trials_usd, seen=seen)


def report_of(record: Record) -> ConformanceReport:
    """Compare all that a record has."""
    rows = [compare(name, row, record.seen.get(name)) for name, row in ASSUMPTIONS.items()]
    return ConformanceReport(record=record, comparisons=rows)


def require_vast(provider: Provider) -> VastProvider:
    """Return the provider. Raises UsageError where it is not Vast's."""
    if not isinstance(provider, VastProvider):
        raise UsageError(f"no assumptions are checked for {provider.name}", hint="vastrun doctor --rent")
    return provider


def _charged(recorder: ApiRecorder, record: Record) -> dict[str, Value]:
    """Return the ratio of charged to counted dollars for GPUs and for disk."""
    usd = {"gpu": 0.0, "disk": 0.0}
    for row in charges_of(recorder):
        items = row.get("items")
        for item in items if isinstance(items, list) else ():
            if isinstance(item, dict) and str(item.get("type")) in usd:
                usd[item["type"]] += number_of(item.get("amount")) or 0.0
    pairs = (
        ("charge.gpu", usd["gpu"], record.counted.gpu_usd),
        ("charge.disk", usd["disk"], record.counted.storage_usd),
    )
    return {name: _ratio(charged, counted, record) for name, charged, counted in pairs if counted > 0}


def _ratio(charged_usd: float, counted_usd: float, record: Record) -> float:
    """Return the ratio of charged to counted dollars, without what the bill's tail may be."""
    ratio = charged_usd / counted_usd
    return ratio - min(max(0.0, ratio - 1), record.tail_usd / record.counted.usd)
