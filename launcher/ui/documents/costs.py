"""Documents of money and of what costs it: costs, bills, hosts, orphaned machines."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from vastrun.launcher.commands.queries import RunRow, UsdSource
from vastrun.launcher.commands.reap import Owner
from vastrun.launcher.core import Cost, Instance
from vastrun.launcher.core.bills import cost_usd, counted_of, gpu_seconds, rented_seconds
from vastrun.launcher.cost.reconciliation import DifferenceReason
from vastrun.launcher.cost.spending import counted_in_total
from vastrun.launcher.cost.statement import Reconciliation, UnclaimedCharge
from vastrun.launcher.decisions.history import HostRecord
from vastrun.launcher.ui.documents.document import Document
from vastrun.launcher.ui.documents.runs import RunDocument


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
