"""A conformance run, as text and as a document: its bill, and each assumption with the observation."""

from __future__ import annotations

from collections.abc import Sequence

from vastrun.launcher.commands.conformance import SETTLEMENT_S, ConformanceReport
from vastrun.launcher.core import Verdict as RunVerdict
from vastrun.launcher.providers.vast.conformance.assumption import Comparison, State, Value, When
from vastrun.launcher.providers.vast.conformance.record import MachineCost, Record
from vastrun.launcher.ui.documents.document import Document
from vastrun.launcher.ui.render.amounts import duration, usd
from vastrun.launcher.ui.render.table import facts, table

_WIDTHS = (20, 22, 24)
"""Columns for names, assumptions and observations, in a table of 80 columns."""


class MachineCostDocument(Document, MachineCost):
    """The cost of the machine by the ledger."""

    usd: float
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
            counted=MachineCostDocument.fill(record.counted, record, usd=record.counted_usd),
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
    return f"{usd(record.billed_usd)} for that machine, of which the ledger counts {usd(record.counted_usd)}"


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
