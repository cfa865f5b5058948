"""`cost` in text, as CSV and as documents: of each run, of groups with --by; bills, hosts, orphans."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from itertools import compress

from vastrun.contract.texts import how_many
from vastrun.launcher.commands.queries import RunRow, UsdSource
from vastrun.launcher.commands.reap import Owner
from vastrun.launcher.core import Cost, Instance
from vastrun.launcher.core.bills import cost_usd, counted_of, gpu_seconds, rented_seconds
from vastrun.launcher.cost.groups import NONE, OVER_TIME, Group, GroupBy
from vastrun.launcher.cost.reconciliation import DifferenceReason
from vastrun.launcher.cost.spending import counted_in_total
from vastrun.launcher.cost.statement import CostReport, Reconciliation, UnclaimedCharge
from vastrun.launcher.decisions.history import HostRecord
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.ui.document import Document
from vastrun.launcher.ui.render.amounts import csv_cell, table, usd_parts, usd_sum
from vastrun.launcher.ui.render.runs import RunDocument

_AMOUNTS = (
    *("runs", "finished", "hours", "gpu_hours", "gpu_usd", "storage_usd", "traffic_usd", "usd"),
    *("training_usd", "idle_usd", "failed_usd", "steps", "usd_per_run", "usd_per_1000_steps"),
)


def report_text(report: CostReport, width: int | None = None) -> str:
    """Write tables of one line per group, with the total: charges and purposes.

    Shown numbers add up: the parts of a line to its cost, the lines to the total. Only tags overlap.
    """
    if not report.groups:
        return "no runs yet" if report.since is report.until is None else "no runs in that time"
    by, lines = report.by, [*report.groups, report.total]
    parts = (_charged(lines, by, width), _used(lines, by, width), _note(report))
    return "\n\n".join(filter(None, parts))


def report_csv(report: CostReport) -> str:
    """Write one line per group with unrounded numbers; missing values are empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([report.by.value, *_AMOUNTS])
    for group in report.groups:
        writer.writerow(
            ["" if group.key == NONE else csv_cell(group.key), *(getattr(group, name) for name in _AMOUNTS)]
        )
    return out.getvalue().removesuffix("\n")


def _charged(lines: Sequence[Group], by: GroupBy, width: int | None) -> str:
    parts = [usd_parts((one.gpu_usd, one.storage_usd, one.traffic_usd)) for one in lines]
    gpu, storage, traffic = zip(*parts, strict=True)
    columns = {
        "RUNS": [str(one.runs) for one in lines],
        "HOURS": _hours([one.hours for one in lines], by),
        "GPU-H": _hours([one.gpu_hours for one in lines], by),
        "GPU": _dollars(gpu, by),
        "STORAGE": _dollars(storage, by),
        "TRAFFIC": _dollars(traffic, by),
        "COST": _dollars([one.usd for one in lines], by),
    }
    return _table(lines, by, columns, width)


def _used(lines: Sequence[Group], by: GroupBy, width: int | None) -> str:
    parts = [usd_parts((one.training_usd, one.idle_usd, one.failed_usd), one.usd) for one in lines]
    training, idle, failed = zip(*parts, strict=True)
    rounded = [round(one.steps) for one in lines]
    columns = {
        "DONE": [str(one.finished) for one in lines],
        "TRAINING": _dollars(training, by),
        "IDLE": _dollars(idle, by),
        "FAILED": _dollars(failed, by),
        "STEPS": [str(amount or NONE) for amount in (*rounded[:-1], sum(_summed(rounded, by)))],
        "PER RUN": [_maybe_usd(one.usd_per_run) for one in lines],
        "PER 1K": [_maybe_usd(one.usd_per_1000_steps) for one in lines],
    }
    return _table(lines, by, columns, width)


def _table(lines: Sequence[Group], by: GroupBy, columns: dict[str, list[str]], width: int | None) -> str:
    cells = zip([one_line(one.key) for one in lines], *columns.values(), strict=True)
    right = range(1, len(columns) + 1)
    return table((by.value.upper(), *columns), cells, right=right, cut=(0,), width=width)


def _summed(amounts: Sequence[float], by: GroupBy) -> Sequence[float]:
    """Return the numbers that the total of a column sums up; for tags, which overlap, the runs' total."""
    return amounts[-1:] if by is GroupBy.TAG else amounts[:-1]


def _dollars(amounts: Sequence[float], by: GroupBy) -> list[str]:
    return [*(usd_sum([amount]) for amount in amounts[:-1]), usd_sum(_summed(amounts, by))]


def _hours(amounts: Sequence[float], by: GroupBy) -> list[str]:
    rounded = [round(amount, 2) for amount in amounts]
    return [f"{amount:.2f}" for amount in (*rounded[:-1], sum(_summed(rounded, by)))]


def _maybe_usd(amount: float | None) -> str:
    return NONE if amount is None else usd_sum([amount])


def _note(report: CostReport) -> str:
    """Return a note about the lines; empty if none is needed."""
    if report.by is GroupBy.TAG:
        return "A run counts under each of its tags, and once in the total."
    if report.by in OVER_TIME:
        return (
            f"Each {report.by.value} is in this computer's time zone ({report.time_zone}).\n"
            "A run that continues into the next one counts in both, each with its share\nof the hours."
        )
    return ""


def costs_table(rows: Sequence[RunRow], now: float, *, width: int | None = None) -> str:
    """Write hours and dollars by run, with the total.

    A run on a slot shows its share, which the total counts only as part of the machine's own run.
    """
    if not rows:
        return "no runs yet"
    # Rounded before summing, so that the column adds up to the total.
    hours = [round(sum(rented_seconds(one, now) for one in row.machines) / 3600, 2) for row in rows]
    parts = [usd_parts((row.cost.gpu_usd, row.cost.storage_usd, row.cost.traffic_usd)) for row in rows]
    gpu, storage, traffic = zip(*parts, strict=True)
    counted = counted_in_total([row.run for row in rows])
    counts = [row.run.id in counted for row in rows]
    columns = {
        "RUN": [*(row.run.id for row in rows), "total"],
        "JOB": [*(row.run.job for row in rows), ""],
        "HOURS": [f"{number:.2f}" for number in (*hours, sum(compress(hours, counts)))],
        "GPU": _with_total(gpu, counts),
        "STORAGE": _with_total(storage, counts),
        "TRAFFIC": _with_total(traffic, counts),
        "COST": [
            *(usd_sum([row.usd]) + ("" if row.verdict or not row.usd else " so far") for row in rows),
            usd_sum(row.usd for row in compress(rows, counts)),
        ],
    }
    cells = zip(*columns.values(), strict=True)
    shown = table(tuple(columns), cells, right=range(2, len(columns)), cut=(1,), width=width)
    bills = sum(row.usd_source is UsdSource.CHARGED for row in rows)
    notes = (
        f"as charged: {bills} of {len(rows)} runs; the others as counted by the ledger" if bills else "",
        _until_billed(list(compress(rows, counts))),
    )
    return "\n\n".join(filter(None, (shown, "\n".join(filter(None, notes)))))


def _until_billed(rows: Sequence[RunRow]) -> str:
    """Write what the bills of ended runs may have beyond the total; empty if nothing."""
    more = [row.at_most_usd - row.usd for row in rows if row.verdict and row.at_most_usd > row.usd]
    if round(sum(more), 3) == 0:
        return ""
    return f"at most {usd_sum([sum(more)])} more until the bills of {how_many(len(more), 'run')} are in"


def _with_total(amounts: Sequence[float], counts: Sequence[bool]) -> list[str]:
    return [*(usd_sum([amount]) for amount in amounts), usd_sum(compress(amounts, counts))]


class NodeCost(Document):
    """The cost of one machine of a run."""

    node: int
    id: str
    usd: float


class RunCost(Document, Cost):
    """The cost of one run."""

    printed_properties = ("usd",)

    id: str
    job: str
    hours: float
    """Hours from the rent until its machine was released."""
    gpu_hours: float
    """Hours for which its GPUs are billed."""
    usd_per_hour: float
    nodes: Sequence[NodeCost]
    """All machines of a run that has several."""
    usd_source: UsdSource
    at_most_usd: float
    """Max. of `usd` until the bill is settled: a machine may be charged after its end."""
    counted_usd: float
    """Cost by the ledger, also where `usd` is what was charged."""
    final: bool
    """True if the run has ended, so that this is its total cost."""
    in_total: bool
    """False: it took a share of a machine whose own run is counted."""

    @classmethod
    def of(cls, row: RunRow, now: float, *, in_total: bool) -> RunCost:
        """Make the document of a run's cost."""
        several = row.machines if row.nodes else ()
        return cls.fill(
            row.cost,
            row,
            id=row.run.id,
            job=row.run.job,
            hours=sum(rented_seconds(one, now) for one in row.machines) / 3600,
            gpu_hours=sum(gpu_seconds(one, now) for one in row.machines) / 3600,
            nodes=[NodeCost.fill(one, usd=cost_usd(one, now)) for one in several],
            counted_usd=sum(counted_of(one, now).usd for one in row.machines),
            final=row.verdict is not None,
            in_total=in_total,
        )


class Costs(Document):
    """The costs of runs."""

    runs: Sequence[RunCost]
    usd: float
    """Sum of all that are counted."""

    @classmethod
    def of(cls, rows: Sequence[RunRow], now: float) -> Costs:
        """Make the document of the costs of all runs."""
        counted = counted_in_total([row.run for row in rows])
        return cls(
            runs=[RunCost.of(row, now, in_total=row.run.id in counted) for row in rows],
            usd=sum(row.usd for row in rows if row.run.id in counted),
        )


class RunReconciliation(Document):
    """One run, counted and charged."""

    id: str
    job: str
    provider: str
    counted_usd: float
    charged_usd: float | None
    """Null: nothing was charged yet."""
    difference_usd: float
    """Above 0: charged and not counted."""
    reasons: Sequence[DifferenceReason]
    unexplained_usd: float
    settled: bool
    """True if all commands use the charges as its cost."""


class ReconciliationDocument(Document):
    """Charges compared with what the ledger counts, in dollars."""

    since: float
    runs: Sequence[RunReconciliation]
    counted_usd: float
    charged_usd: float
    charged_besides: Sequence[UnclaimedCharge]
    without_bill: Mapping[str, int]
    """Number of runs that were left out, by the provider that has no bills."""
    explained: bool

    @classmethod
    def of(cls, found: Reconciliation, settled: Collection[str]) -> ReconciliationDocument:
        """Make the document of all bills. `settled`: ids of runs whose charges are their cost."""
        bills = [one.bill for one in found.runs]
        return cls.fill(
            found,
            runs=[
                RunReconciliation.fill(
                    one,
                    bill,
                    bill.run,
                    counted_usd=bill.counted.usd,
                    charged_usd=bill.charged_usd if bill.charges else None,
                    settled=bill.run.id in settled,
                )
                for one, bill in zip(found.runs, bills, strict=True)
            ],
            counted_usd=sum(bill.counted.usd for bill in bills),
            charged_usd=sum(bill.charged_usd for bill in bills),
            charged_besides=found.unclaimed,
        )


class Hosts(Document):
    """The hosts that were used."""

    hosts: Sequence[HostRecord]


class OrphanMachine(Document, Instance):
    """A machine that no open run claims."""

    run: str | None
    """Its run, when this ledger knows it."""
    owner: Owner
    ledger: str | None
    """The ledger that its label names."""
    is_ghost: bool
    """True if its destruction was confirmed and the provider lists it again; it is not charged again."""


class Orphans(Document):
    """Machines that no open run claims."""

    machines: Sequence[OrphanMachine] = ()
    destroyed: Sequence[str] = ()
    """Ids of destroyed machines, names of removed networks."""
    networks: Sequence[str] = ()
    """Networks of runs that have ended."""
    unscheduled: Sequence[str] = ()
    """Ids of machines that are gone, whose scheduled ends were removed."""
    left: Sequence[RunDocument] = ()
    """Open runs whose machines are left to their leases because the provider rejected the key."""
