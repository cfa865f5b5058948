"""Shapes of the market and of money: offers, plans, costs, bills, hosts."""

from __future__ import annotations

from launcher.commands.accounting import StrangeCharge
from launcher.commands.orphans import Owner
from launcher.commands.queries import UsdSource
from launcher.core import Cost, Instance, Lease, LeftOutFiles, Offer, Volume
from launcher.core.job import JobSpec
from launcher.decisions.grouping import Group, GroupBy, Scored
from launcher.decisions.host_history import HostRecord
from launcher.decisions.market_report import Constraint, MarketReport, Quote
from launcher.decisions.reconciling import DifferenceReason
from launcher.ui.schemas.runs import ShownRun
from launcher.ui.schemas.shape import JsonShape
from trainer.contract.workload import Workloads


class ShownOffer(JsonShape, of=Offer):
    """An offer, as the job sees it."""

    expected_usd: float
    """What the job should cost there within its limits, all nodes together."""
    finishing_usd: float
    """What finishing it should cost, whatever its limits are: offers are sorted by it. 0: nobody knows."""
    at_most_usd: float
    """What its limits let it cost."""
    speed: str | None
    """How its speed is known."""


class ShownPlan(JsonShape):
    """What a launch would do and cost."""

    job: JobSpec
    provider: str
    offers: list[ShownOffer]
    """Best first."""
    worst_case_usd: float
    """On the first offer."""
    lease: Lease
    refused: list[str]
    """Budgets that have no room for it."""
    deadline: str | None
    expected_end_at: float | None
    workloads: Workloads | None
    """What a step takes of a rank; null: it was not foretold."""
    not_foretold: str | None
    """Why it was not."""
    left_out: LeftOutFiles | None
    """Files that would not be downloaded, by a rehearsal of the job; null: there was none."""


class ShownQuote(JsonShape, of=Quote, without=["offer"]):
    """What finishing the job on one offer is expected to cost."""

    offer: ShownOffer
    usd: float


class ExplainedMarket(JsonShape, of=MarketReport, without=["constraints", "quotes"]):
    """What the job's limits leave of the market."""

    hurdles: list[Constraint]
    """In the order in which they are tried."""
    quotes: list[ShownQuote]
    """Of what is left, the cheapest to finish first."""
    left: int


class NodeCost(JsonShape):
    """What one machine of a run cost."""

    node: int
    id: str
    usd: float


class RunCost(JsonShape, of=Cost):
    """What one run cost."""

    id: str
    job: str
    hours: float
    """From the rent until its machine was given back."""
    gpu_hours: float
    """Of these, those for which its GPUs are billed."""
    usd_per_hour: float
    nodes: list[NodeCost]
    """Of a run that has several machines: all of them."""
    usd: float
    usd_source: UsdSource
    counted_usd: float
    """By the ledger, also where `usd` is what was charged."""
    billed_usd: float | None
    """What its provider charged; null: it was not asked, or does not say."""
    final: bool
    """It has ended, so that this is all of it."""
    in_total: bool
    """False: it took a share of a machine whose own run is counted."""


class VolumeCost(JsonShape, of=Volume):
    """A data volume and what it costs."""

    usd_per_month: float
    """Price of 30 days."""
    usd: float
    """Cost until now, or until it was deleted."""


class Costs(JsonShape):
    """What runs cost."""

    runs: list[RunCost]
    usd: float
    """Of all that are counted."""
    volumes: list[VolumeCost]
    """Data volumes, also those that were deleted; none where one run is asked for. No part of `usd`."""


class CostGroup(JsonShape, of=Group, without=["cost", "scored"]):
    """What runs that have something in common cost together."""

    gpu_usd: float
    storage_usd: float
    traffic_usd: float
    usd: float
    training_usd: float
    usd_per_run: float | None
    """Everything, for each run that finished; null: none did."""
    usd_per_1000_steps: float | None
    scored: Scored | None


class GroupedCosts(JsonShape):
    """What runs cost together."""

    by: GroupBy
    since: float | None
    until: float | None
    """Epoch seconds, as they were asked for; null: they were not."""
    time_zone: str
    """Of the days and months."""
    metric: str | None
    groups: list[CostGroup]
    total: CostGroup


class ReconciledRun(JsonShape):
    """One run, counted and charged."""

    id: str
    job: str
    provider: str
    counted_usd: float
    charged_usd: float | None
    """Null: nothing was charged yet."""
    difference_usd: float
    """Above 0: charged and not counted."""
    reasons: list[DifferenceReason]
    unexplained_usd: float
    settled: bool
    """It costs what was charged, for all commands."""


class Reconciled(JsonShape):
    """What was charged beside what is counted, in dollars."""

    since: float
    runs: list[ReconciledRun]
    counted_usd: float
    charged_usd: float
    charged_besides: list[StrangeCharge]
    without_bill: dict[str, int]
    """How many runs were left out, by the provider that has no bills."""
    explained: bool


class Hosts(JsonShape):
    """The hosts that were used."""

    hosts: list[HostRecord]


class OrphanMachine(JsonShape, of=Instance):
    """A machine that no open run claims."""

    run: str | None
    """Its run, when this ledger knows it."""
    owner: Owner
    ledger: str | None
    """The ledger that its label names."""
    is_ghost: bool
    """Its run confirmed its end, and the provider lists it again: it is not charged again."""


class ShownVolume(VolumeCost, of=Volume):
    """A data volume as its provider lists it."""

    in_use: bool
    """A machine has it, or had it until a moment ago."""
    unused: bool
    """No run has used it for 7 days."""


class Orphans(JsonShape):
    """Machines that no open run claims."""

    machines: list[OrphanMachine]
    destroyed: list[str]
    """The ids of those that were ended, the names of networks and volumes that were removed."""
    networks: list[str]
    """Networks that were made for runs, of which none is open."""
    volumes: list[ShownVolume]
    """Data volumes of this ledger that exist; with --volume, those that it names."""
    left: list[ShownRun]
    """Open runs whose machines are left to their leases, because the provider refused the key."""
