"""`vastrun doctor --rent` and `--settle`: compare the live service with the assumptions about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vastrun.launcher.api.runs import start_run
from vastrun.launcher.app_context import AppContext
from vastrun.launcher.cli.options import confirm
from vastrun.launcher.cli.output import say, set_error_run, show
from vastrun.launcher.commands.conformance import (
    MAX_RUN_S,
    SETTLEMENT_S,
    ConformanceReport,
    ConformanceRun,
    conformance_job,
    report_of,
    settled,
)
from vastrun.launcher.commands.plan import plan_of
from vastrun.launcher.core import Cost, Run, UserRequest
from vastrun.launcher.core import Verdict as RunVerdict
from vastrun.launcher.core.errors import NoOfferError, VastrunError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.estimates import offer_text
from vastrun.launcher.decisions.offer_check import PYPI_FILE
from vastrun.launcher.providers.vast.conformance.assumption import Comparison, State, Value, When
from vastrun.launcher.providers.vast.conformance.observed_vast import ProbeLevel
from vastrun.launcher.providers.vast.conformance.record import Record, read_record, write_record
from vastrun.launcher.run_services import attempts_for
from vastrun.launcher.ui.documents.document import Document
from vastrun.launcher.ui.interrupts import Interrupts
from vastrun.launcher.ui.render.amounts import duration, usd
from vastrun.launcher.ui.render.table import facts, table

_PROVIDER = "vast"
_WIDTHS = (20, 22, 24)
"""Columns for names, assumptions and observations, in a table of 80 columns."""


@dataclass(frozen=True, kw_only=True)
class ConformanceRequest:
    """Options of a conformance run."""

    usd: float
    gpus: int
    sets: Sequence[str]
    file: Path | None
    watch_s: float
    download_url: str | None
    yes: bool
    as_json: bool


def rent(app: AppContext, request: ConformanceRequest) -> int:
    """Rent a machine, run the job there, show the comparison; return the exit code."""
    began = app.now()
    spec = conformance_job(request.usd, request.gpus, request.sets, began)
    interrupts = app.make.interrupts()
    examination = ConformanceRun(
        app.provider(_PROVIDER),
        ProbeLevel(download_url=request.download_url or PYPI_FILE, watch_s=request.watch_s),
        lambda: interrupts.current() is not UserRequest.NONE,
    )
    app = app.with_factories(provider=lambda _: examination.provider)
    run: Run | None = None
    error: VastrunError | None = None
    try:
        _agree(app, spec, began, yes=request.yes)
    except NoOfferError as no_offer:  # the report still shows the search
        error = no_offer
    with interrupts.listening():
        if error is None:
            run, error = _drive(app, interrupts, spec, began)
        examination.check_after_run()
    run = None if run is None else app.ledger().get(run.id)
    path = request.file or Path(f"conformance-{run.id if run else 'no-offer'}.json")
    report = examination.report(run, began, app.now())
    write_record(path, report.record)
    show(Conformance.of(report, str(path)), conformance_text(report, str(path)), as_json=request.as_json)
    if error is not None:
        raise error
    return report.exit_code


def settle(app: AppContext, path: Path, *, as_json: bool) -> int:
    """Add the charges to a record, and show it; return the exit code."""
    record = settled(read_record(path), app.provider(_PROVIDER), app.now())
    if record.billed_usd is not None:
        write_record(path, record)
    report = report_of(record)
    show(Conformance.of(report, str(path)), conformance_text(report, str(path)), as_json=as_json)
    if record.billed_usd is None:
        say("there is no charge for this machine yet; try again in a few minutes", err=True)
    return report.exit_code


def _agree(app: AppContext, spec: JobSpec, now: float, *, yes: bool) -> None:
    """Check the budgets and ask the user to agree. Costs nothing."""
    plan = plan_of(spec, app.provider(_PROVIDER), app.ledger(), now, app.budgets(now))
    if plan.refusals:
        raise plan.refusals[0]
    offer = offer_text(plan.spec, plan.offers[0])
    limits = f"All machines together: at most {usd(spec.limits.usd or 0.0)} and {duration(MAX_RUN_S)}"
    confirm(
        f"rent {offer}, after the short trial of a bid, to check the assumptions about Vast. {limits}",
        yes=yes,
    )


def _drive(
    app: AppContext, interrupts: Interrupts, spec: JobSpec, began: float
) -> tuple[Run, VastrunError | None]:
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
    parts = [_summary(report, path), _table(report.comparisons)]
    parts += [_deviation(one) for one in report.deviating]
    return "\n\n".join(parts)


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
            *([("trials", _trials(record))] if record.trials else []),
            ("rows", ", ".join(f"{number} {state}" for state, number in count.items() if number)),
            ("untried", "whether Vast sends a scheduled end: its first hour comes after a trial"),
            ("file", f"{path}   (holds no secret; attach it to an issue)"),
        ]
    )


def _trials(record: Record) -> str:
    """Write the machines of the trials, with their charges once they are settled."""
    named = ", ".join(f"{name} {machine}" for machine, name in record.trials.items())
    billed_usd = record.trials_billed_usd
    return named if billed_usd is None else f"{named}: {usd(billed_usd)} charged"


def _bill(report: ConformanceReport, path: str) -> str:
    record = report.record
    if not record.instance:
        return ""
    if record.billed_usd is None:
        return f"not settled yet; in {SETTLEMENT_S / 60:.0f} minutes: vastrun doctor --settle {path}"
    return f"{usd(record.billed_usd)} for that machine, of which the ledger counts {usd(record.counted.usd)}"


def _table(comparisons: Sequence[Comparison]) -> str:
    rows = [
        (one.state, one.name, _cut(str(one.assumption.assumed), 1), _cut(one.seen_text, 2))
        for one in comparisons
    ]
    return table(("", "ASSUMPTION", "ASSUMED", "SEEN"), rows)


def _cut(text: str, column: int) -> str:
    width = _WIDTHS[column]
    return text if len(text) <= width else text[: width - 1] + "…"


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
