"""`vastrun doctor --rent` and `--settle`: compare the live service with the assumptions about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from vastrun.launcher.api.runs import start_run
from vastrun.launcher.app import App
from vastrun.launcher.cli.options import confirm
from vastrun.launcher.cli.output import say, set_error_run, show
from vastrun.launcher.commands.plan import plan_of
from vastrun.launcher.core import Cost, Run, UserRequest
from vastrun.launcher.core import Verdict as RunVerdict
from vastrun.launcher.core.bills import cost_usd, counted_of, max_cost_usd
from vastrun.launcher.core.errors import NoOfferError, UsageError, VastrunError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.verdict import EXIT_CODE_OF, EXIT_DEVIATES, EXIT_TEARDOWN_NOT_CONFIRMED, Verdict
from vastrun.launcher.decisions.estimates import offer_text
from vastrun.launcher.decisions.offer_check import PYPI_FILE
from vastrun.launcher.package_files import configs_dir
from vastrun.launcher.ports import Provider
from vastrun.launcher.providers.vast import VastProvider, account
from vastrun.launcher.providers.vast.conformance.assumptions import (
    ASSUMPTIONS,
    Comparison,
    State,
    Value,
    When,
    compare,
)
from vastrun.launcher.providers.vast.conformance.observations import charges_of, number_of, seen_in
from vastrun.launcher.providers.vast.conformance.observed_vast import ObservedVast, ProbeLevel
from vastrun.launcher.providers.vast.conformance.recorder import (
    ApiRecorder,
    Record,
    read_record,
    write_record,
)
from vastrun.launcher.run_services import attempts_for
from vastrun.launcher.ui.document import Document
from vastrun.launcher.ui.interrupts import Interrupts
from vastrun.launcher.ui.render.amounts import duration, usd
from vastrun.launcher.ui.render.table import facts, short, table

_PROVIDER = "vast"
JOB = "conformance.yaml"
MAX_RUN_S = 600.0
"""No machine is kept for longer, loading included."""
SETTLEMENT_S = 900.0
"""Seconds after the end when charges are expected to be listed."""


def rent(
    app: App,
    spec: JobSpec,
    *,
    file: Path | None,
    watch_s: float,
    download_url: str | None,
    yes: bool,
    as_json: bool,
) -> int:
    """Rent a machine, run the job there, show the comparison; return the exit code."""
    began = app.now()
    interrupts = app.interrupts()
    recorder = ApiRecorder()
    observed = ObservedVast(
        require_vast(app.provider(_PROVIDER)),
        recorder,
        ProbeLevel(download_url=download_url or PYPI_FILE, watch_s=watch_s),
        lambda: interrupts.current() is not UserRequest.NONE,
    )
    app = app.with_changes(provider=lambda _: observed)
    run: Run | None = None
    error: VastrunError | None = None
    try:
        plan = plan_of(spec, app.provider(_PROVIDER), app.ledger(), began, app.budgets(began))
        if plan.refusals:
            raise plan.refusals[0]
        offer = offer_text(plan.spec, plan.offers[0])
        limits = f"All machines together: at most {usd(spec.limits.usd or 0.0)} and {duration(MAX_RUN_S)}"
        confirm(f"rent {offer} to check the assumptions about Vast. {limits}", yes=yes)
    except NoOfferError as no_offer:  # the report still shows the search
        error = no_offer
    with interrupts.listening():
        if error is None:
            run, error = _drive(app, interrupts, spec, began)
        observed.check_after_run()
    run = None if run is None else app.ledger().get(run.id)
    path = file or Path(f"conformance-{run.id if run else 'no-offer'}.json")
    report = report_after(recorder, run, began, app.now())
    write_record(path, report.record)
    show(Conformance.of(report, str(path)), conformance_text(report, str(path)), as_json=as_json)
    if error is not None:
        raise error
    return report.exit_code


def settle(app: App, path: Path, *, as_json: bool) -> int:
    """Add the charges to a record, and show it; return the exit code."""
    record = settled(read_record(path), app.provider(_PROVIDER), app.now())
    if record.billed_usd is not None:
        write_record(path, record)
    report = report_of(record)
    show(Conformance.of(report, str(path)), conformance_text(report, str(path)), as_json=as_json)
    if record.billed_usd is None:
        say("there is no charge for this machine yet; try again in a few minutes", err=True)
    return report.exit_code


def _drive(app: App, interrupts: Interrupts, spec: JobSpec, began: float) -> tuple[Run, VastrunError | None]:
    """Drive the run to its end; return it with the error that ended it early, raised after the report."""
    run_id = app.new_id()
    with attempts_for(app, interrupts, began=began) as attempts:
        run = start_run(attempts, spec, provider=_PROVIDER, run_id=run_id, out=None, parent=None)
        set_error_run(run)
        say(f"run {run.id}, outputs in {run.out_dir}", err=True)
        try:
            return attempts.drive_or_follow(run), None
        except VastrunError as error:
            return run, error


class MachineCostDocument(Document, Cost):
    """The cost of the machine by the ledger."""

    printed_properties = ("usd",)

    run_usd: float
    """Cost of all machines of the run."""


class AssumptionRow(Document):
    """An assumption with its observation."""

    name: str
    state: State
    text: str
    assumed: str
    seen: Value | None
    """Observed value; null if nothing was observed."""
    seen_text: str
    how: str
    rests: str
    when: When


class Conformance(Document):
    """The behaviour of the live service."""

    exit_code: int
    file: str
    run: str
    """Id of the run; empty if no offer fitted."""
    verdict: RunVerdict | None
    counted: MachineCostDocument
    billed_usd: float | None
    """Charges of the provider; null if not settled yet."""
    rows: Sequence[AssumptionRow]

    @classmethod
    def of(cls, report: ConformanceReport, path: str) -> Conformance:
        """Make the document of a report. `path`: the file of observations."""
        record = report.record
        return cls.fill(
            report,
            record,
            file=path,
            verdict=record.verdict or None,
            counted=MachineCostDocument.fill(record.counted, record),
            rows=[
                AssumptionRow.fill(one, one.assumption, assumed=str(one.assumption.assumed))
                for one in report.comparisons
            ],
        )


def conformance_text(report: ConformanceReport, path: str) -> str:
    """Write a report. `path`: the file of observations."""
    deviations = map(_deviation, report.deviating)
    rows = [
        (one.state, one.name, short(str(one.assumption.assumed), 22), short(one.seen_text, 24))
        for one in report.comparisons
    ]
    return "\n\n".join(
        [_summary(report, path), table(("", "ASSUMPTION", "ASSUMED", "SEEN"), rows), *deviations]
    )


def _summary(report: ConformanceReport, path: str) -> str:
    record = report.record
    verdict = record.verdict or ("open" if record.run else "NO_OFFER")
    count = {state: sum(one.state is state for one in report.comparisons) for state in State}
    return facts(
        [
            ("run", f"{record.run or 'none'} {verdict}, {duration(record.ended_at - record.began_at)}"),
            ("machine", record.machine if record.instance else "none was rented"),
            ("ledger", usd(record.run_usd)),
            ("bill", _bill(report, path)),
            ("rows", ", ".join(f"{number} {state}" for state, number in count.items() if number)),
            ("untried", "whether Vast sends a scheduled end: its first hour comes after a trial"),
            ("file", f"{path}   (holds no secret; attach it to an issue)"),
        ]
    )


def _bill(report: ConformanceReport, path: str) -> str:
    record = report.record
    if not record.instance:
        return ""
    if record.billed_usd is None:
        return f"not settled yet; in {SETTLEMENT_S / 60:.0f} minutes: vastrun doctor --settle {path}"
    return f"{usd(record.billed_usd)} for that machine, of which the ledger counts {usd(record.counted.usd)}"


def _deviation(one: Comparison) -> str:
    assumption = one.assumption
    return facts(
        [
            ("deviates", one.name),
            ("", assumption.text),
            ("assumed", str(assumption.assumed)),
            ("seen", one.seen_text),
            ("how", assumption.how),
            ("rests on it", assumption.rests),
        ]
    )


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
            if one.state is State.NOT_SEEN and (settled or one.assumption.when is When.RENT)
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


def report_after(recorder: ApiRecorder, run: Run | None, began: float, now: float) -> ConformanceReport:
    """Compare what was seen with what is assumed; `run` is None where no offer fitted."""
    seen, base = seen_in(recorder), Record(began_at=began, ended_at=now)
    if run is None:
        return report_of(replace(base, exit_code=EXIT_CODE_OF[Verdict.NO_OFFER], seen=seen))
    alone = replace(run, rentals=())
    return report_of(
        Record(
            run=run.id,
            instance=recorder.instance_id,
            machine="" if run.offer is None else run.offer.description[:200],
            began_at=began,
            ended_at=run.ended_at or now,
            verdict="" if run.verdict is None else run.verdict.value,
            exit_code=run.exit_code(),
            counted=counted_of(alone, now),
            tail_usd=max_cost_usd(alone, now) - cost_usd(alone, now),
            run_usd=cost_usd(run, now),
            seen=seen,
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
    charged = account.charges_of(vast.api, record.began_at, now)
    charges = [one for one in charged if one.instance_id == record.instance]
    if not charges:
        return record
    # The ratio of charged to counted dollars, for GPUs and for disk.
    charged_usd = {"gpu": 0.0, "disk": 0.0}
    for row in charges_of(recorder):
        items = row.get("items")
        for item in items if isinstance(items, list) else ():
            if isinstance(item, dict) and str(item.get("type")) in charged_usd:
                charged_usd[item["type"]] += number_of(item.get("amount")) or 0.0
    billed_usd = sum(charge.usd for charge in charges)
    pairs = (
        ("charge.gpu", charged_usd["gpu"], record.counted.gpu_usd),
        ("charge.disk", charged_usd["disk"], record.counted.storage_usd),
        ("charge.total", billed_usd, record.counted.usd),
    )
    recorder.measured |= {
        name: _ratio(charged, counted, record) for name, charged, counted in pairs if counted > 0
    }
    bill = {name: value for name, value in seen_in(recorder).items() if ASSUMPTIONS[name].when is When.SETTLE}
    seen = {**record.seen, **bill}
    return replace(record, billed_usd=billed_usd, seen=seen)


def report_of(record: Record) -> ConformanceReport:
    """Compare all that a record has."""
    rows = [compare(name, row, record.seen.get(name)) for name, row in ASSUMPTIONS.items()]
    return ConformanceReport(record=record, comparisons=rows)


def require_vast(provider: Provider) -> VastProvider:
    """Return the provider. Raises UsageError where it is not Vast's."""
    if not isinstance(provider, VastProvider):
        raise UsageError(f"no assumptions are checked for {provider.name}", hint="vastrun doctor --rent")
    return provider


def _ratio(charged_usd: float, counted_usd: float, record: Record) -> float:
    """Return the ratio of charged to counted dollars, without what the bill's tail may be."""
    ratio = charged_usd / counted_usd
    return ratio - min(max(0.0, ratio - 1), record.tail_usd / record.counted.usd)
