"""History: hosts that failed and are avoided for a while, and the speeds of a job's earlier runs. Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import itemgetter
from statistics import median
from typing import Literal

from vastrun.contract.workload import Workloads
from vastrun.launcher.config import read_job
from vastrun.launcher.core import Cause, MeasuredRun, Offer, Phase, Run
from vastrun.launcher.core.bills import WATCHED_S
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.labels import POOL
from vastrun.launcher.core.phases import BEFORE_TRAINING
from vastrun.launcher.decisions import policy
from vastrun.launcher.decisions.job_shape import JobShape, shape_of, shape_prefilter
from vastrun.launcher.decisions.workload import EFFICIENCY

HALF_LIFE_S = 7 * 86400.0
"""Seconds after which a failure weighs half as much."""
MIN_AVOIDED_SCORE = 1.0
"""Score from which a host is avoided: two failures weigh this much a week later."""
FRESH_S = 86400.0
"""Seconds for which a single failure is enough."""
MIN_ACCOUNT_MACHINES = 2
"""Avoided machines from which their account is: one bad GPU says nothing of a datacenter's other machines."""

HOST_CAUSES = (Cause.COMMUNICATION, Cause.HOST, Cause.LOST)
"""Causes that may be the host's fault."""
MachineKind = tuple[str, int]
"""Name and number of GPUs."""

MAX_RUNS = 50
"""Max. number of runs on a kind of machine that count, newest first: programs and drivers change."""
MIN_TAILS = 50
"""Number of settled bills whose tails after a machine's end are measured: the next tail is longer than all of
these with a chance of 1 in 51. Until then the provider's own maximum counts."""
_MAX_JOBS = 4_000
"""Number of cached shapes: a batch needs the same ones at each of its runs."""


@dataclass(frozen=True, kw_only=True)
class HostRecord:
    """Record of the runs on one host."""

    provider: str
    host: str
    description: str
    """Description of its last offer."""
    runs: int
    failures: int
    """Number of failures that the host is blamed for."""
    score: float
    """Sum of the failures, weighted by age."""
    last_run_at: float
    last_failure_at: float | None = None
    last_cause: Cause | None = None
    account: str = ""
    address: str = ""
    """Account and public address of its last offer; empty: unknown."""
    avoided: Literal["machine", "address", "account"] | None = None
    """Scope that is avoided now: this machine, all at its address, or all of its account; None: none."""
    avoided_until: float | None = None
    """Time at which it will be rented again, unless more fails; None: it is not avoided."""


@dataclass(frozen=True, kw_only=True)
class AvoidedHosts:
    """Hosts on which nothing should be rented now: machines, all at an address, and all of an account."""

    machines: frozenset[str] = frozenset()
    addresses: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()

    @classmethod
    def among(cls, records: Iterable[HostRecord]) -> AvoidedHosts:
        """Return what the machines that failed speak against: a bad network is the whole site's."""
        failed = [record for record in records if record.avoided == "machine"]
        accounts = Counter(record.account for record in failed)
        return cls(
            machines=frozenset(record.host for record in failed),
            addresses=frozenset(record.address for record in failed) - {""},
            accounts=frozenset(one for one, count in accounts.items() if count >= MIN_ACCOUNT_MACHINES)
            - {""},
        )

    def covers(self, offer: Offer) -> bool:
        """Return whether the offer should not be rented now."""
        is_of_failed = offer.address in self.addresses or offer.host_account in self.accounts
        return is_of_failed or offer.host in self.machines


NOTHING_AVOIDED = AvoidedHosts()


def avoided(runs: Iterable[Run], provider: str, now: float) -> AvoidedHosts:
    """Return what nothing should be rented of at the provider now.

    Failures of runs on slots count, too, except a lost machine: its holder's run counts that.
    """
    counted = (
        run
        for run in runs
        if run.provider == provider or (run.provider == POOL and run.cause is not Cause.LOST)
    )
    return AvoidedHosts.among(host_records(counted, now))


def host_records(runs: Iterable[Run], now: float) -> list[HostRecord]:
    """Return a record of each host that was rented for money, the worst first.

    A free machine is the user's own: there is no alternative to it.
    """
    by_host: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        if run.host and run.usd_per_hour > 0 and run.rented_at is not None:
            by_host[run.provider, run.host].append(run)
    records = [_record(runs_there, now) for runs_there in by_host.values()]
    failed = [record for record in records if record.avoided]
    marked = (_marked(record, failed) for record in records)
    return sorted(marked, key=lambda record: (-record.score, -record.last_run_at))


def _marked(record: HostRecord, failed: Sequence[HostRecord]) -> HostRecord:
    """Return the record of a machine with what is avoided of it because of others that failed."""
    at_address = [one for one in failed if one.address and one.address == record.address]
    of_account = [one for one in failed if one.account and one.account == record.account]
    scopes: Sequence[tuple[Literal["address", "account"], list[HostRecord], int]]
    scopes = (("address", at_address, 1), ("account", of_account, MIN_ACCOUNT_MACHINES))
    for scope, neighbours, needed in () if record.avoided else scopes:
        if len(neighbours) >= needed:
            ends = sorted((one.avoided_until or 0.0 for one in neighbours), reverse=True)
            return replace(record, avoided=scope, avoided_until=ends[needed - 1])
    return record


def blames_host(run: Run) -> bool:
    """Return whether the host is to blame for the run's failure, not the job, the user or the local
    network.

    With several nodes, only the node that failed counts.
    """
    if run.failed_node not in (None, run.node) or run.meter.is_forgiven:
        return False
    if run.cause is Cause.COMMUNICATION:
        return run.failed_in is Phase.BOOT  # measured there; what ranks raise is a text
    return run.cause is Cause.HOST or (run.cause is Cause.LOST and not _lease_may_have_ended(run))


def _record(runs: Sequence[Run], now: float) -> HostRecord:
    runs = sorted(runs, key=lambda run: run.created_at)
    failures = [(_failed_at(run), run.cause) for run in runs if blames_host(run)]
    last_failure_at, last_cause = max(failures, key=itemgetter(0)) if failures else (None, None)
    # Failures fade instead of adding up for ever: a host that was repaired is rented again.
    score = sum(0.5 ** (max(0.0, now - at) / HALF_LIFE_S) for at, _ in failures)
    until = None
    if last_failure_at is not None and (now - last_failure_at < FRESH_S or score >= MIN_AVOIDED_SCORE):
        until = max(last_failure_at + FRESH_S, now + HALF_LIFE_S * math.log2(score / MIN_AVOIDED_SCORE))
    last = runs[-1]
    return HostRecord(
        provider=last.provider,
        host=last.host,
        description=last.offer.description if last.offer else "",
        runs=len(runs),
        failures=len(failures),
        score=score,
        last_run_at=last.created_at,
        last_failure_at=last_failure_at,
        last_cause=last_cause,
        account=last.offer.host_account if last.offer else "",
        address=last.offer.address if last.offer else "",
        avoided=None if until is None else "machine",
        avoided_until=until,
    )


def _failed_at(run: Run) -> float:
    return run.released_at or run.ended_at or run.phase_at


def _lease_may_have_ended(run: Run) -> bool:
    """Return whether the lease may have ended a machine on which nothing was started."""
    if run.offer is None or run.rented_at is None or run.failed_in not in BEFORE_TRAINING:
        return False
    return _failed_at(run) >= run.rented_at + policy.lease_of(read_job(run.spec_json), run.offer).ship_s


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Speed that was measured on one kind of machine."""

    steps_per_s: float
    runs: int
    """Number of runs; the speed is their median."""


@dataclass(frozen=True, kw_only=True)
class SpeedHistory:
    """Speeds, boot times and preemptions that the ledger has recorded."""

    speeds: Mapping[MachineKind, Speed] = field(default_factory=dict)
    """Speeds of jobs of the same shape."""
    boot_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds from rent to the armed lease by host, image pull included."""
    workloads: Workloads | None = None
    """Estimated workloads of the job's steps; None: not estimated."""
    efficiency: float = EFFICIENCY
    """Share of the roofline that earlier trainings reached."""
    preemptions_per_hour: float = 0.1
    """Expected preemptions per hour of a machine rented by a bid; one in ten hours without history."""
    bill_tail_s: float = math.inf
    """Max. seconds after its end for which a machine was charged, by this account's settled bills; inf: too
    few are settled."""
    avoid: AvoidedHosts = NOTHING_AVOIDED
    """Hosts that the search may leave out."""
    up_mbps: float = 20.0
    """Upload speed of this computer in Mbit/s."""


def speed_history_of(
    runs: Iterable[MeasuredRun], provider: str, spec: JobSpec, *, excluded_host: str | None = None
) -> SpeedHistory:
    """Return the history of the provider's machines for the choice of one for this job.

    `runs`: newest first. `excluded_host`: its runs do not count.
    """
    shape, may_match = shape_of(spec), shape_prefilter(spec)
    speeds: dict[MachineKind, list[float]] = defaultdict(list)
    boots: dict[str, list[float]] = defaultdict(list)
    bid_hours, preemptions = 0.0, 0
    runs = [run for run in runs if run.provider == provider]
    for run in runs:
        if run.host == excluded_host:
            continue
        bid_hours += run.bid_hours
        preemptions += run.preempted
        if run.boot_s is not None:
            boots[run.host].append(run.boot_s)
        found = speeds[run.gpu_name, run.gpus]
        # To read a job takes longer than all else here.
        if not run.steps_per_s or len(found) >= MAX_RUNS or not may_match(run.spec_json):
            continue
        if _shape(run.spec_json) == shape:
            found.append(run.steps_per_s)
    # Of the account that was used last; inf: too few bills are settled.
    account = next((run.account for run in runs if run.account), "")
    tails = [run.tail_s for run in runs if run.tail_s is not None and run.account == account]
    # A count may be above its run by one look at the machine, which hides as much of a tail.
    return SpeedHistory(
        speeds={
            kind: Speed(steps_per_s=median(found), runs=len(found)) for kind, found in speeds.items() if found
        },
        boot_s={host: median(found) for host, found in boots.items()},
        preemptions_per_hour=(preemptions + 1) / (bid_hours + 10),
        bill_tail_s=max(tails) + WATCHED_S if len(tails) >= MIN_TAILS else math.inf,
    )


def kind_of(offer: Offer) -> MachineKind:
    """Return the kind of machine that is on offer."""
    return offer.gpu_name or "", offer.gpus


def kind_text(kind: MachineKind) -> str:
    """Describe a kind of machine: `RTX 4090 x1`."""
    name, gpus = kind
    return f"{name or 'CPU'} x{gpus}" if name or gpus else "CPU"


@lru_cache(maxsize=_MAX_JOBS)
def _shape(spec_json: str) -> JobShape:
    return shape_of(read_job(spec_json))
