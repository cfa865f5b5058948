"""Host history: which hosts failed, and which of them to avoid until the failures are old."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vastrun.launcher.config import read_job
from vastrun.launcher.core import Cause, Run
from vastrun.launcher.core.phases import BEFORE_TRAINING
from vastrun.launcher.core.slots import POOL
from vastrun.launcher.decisions import policy

HALF_LIFE_S = 7 * 86400.0
"""Seconds after which a failure weighs half as much."""
MIN_AVOIDED_SCORE = 1.0
"""Score from which a host is avoided: two failures weigh this much a week later."""
FRESH_S = 86400.0
"""Seconds for which a single failure is enough."""

HOST_CAUSES = (Cause.COMMUNICATION, Cause.HOST, Cause.LOST, Cause.SLOW)
"""Causes that may be the host's fault."""


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
    avoided: bool = False


def avoided(runs: Iterable[Run], provider: str, now: float) -> frozenset[str]:
    """Return the provider's hosts on which nothing should be rented now.

    Failures of runs on slots count, too, except a lost machine: its holder's run counts that.
    """
    records = host_records(
        (run for run in runs if run.provider == provider or _counts_for_host(run)),
        now,
    )
    return frozenset(record.host for record in records if record.avoided)


def host_records(runs: Iterable[Run], now: float) -> list[HostRecord]:
    """Return a record of each host that was rented for money, the worst first.

    A free machine is the user's own: there is no alternative to it.
    """
    by_host: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        if run.host and run.usd_per_hour > 0 and run.rented_at is not None:
            by_host[run.provider, run.host].append(run)
    records = [_record(runs_there, now) for runs_there in by_host.values()]
    return sorted(records, key=lambda record: (-record.score, -record.last_run_at))


def blames_host(run: Run) -> bool:
    """Return whether the host is to blame for the run's failure, not the job, the user or the local
    network.

    With several nodes, only the node that failed counts.
    """
    if not run.is_to_blame:
        return False
    if run.cause is Cause.COMMUNICATION:
        return run.step == 0
    return run.cause in (Cause.HOST, Cause.SLOW) or (
        run.cause is Cause.LOST and not _lease_may_have_ended(run)
    )


def _counts_for_host(run: Run) -> bool:
    return run.provider == POOL and run.cause is not Cause.LOST


def _record(runs: Sequence[Run], now: float) -> HostRecord:
    runs = sorted(runs, key=lambda run: run.created_at)
    failures = [(_failed_at(run), run.cause) for run in runs if blames_host(run)]
    last_failure_at, last_cause = max(failures, default=(None, None), key=lambda failure: failure[0] or 0.0)
    # Failures fade instead of adding up for ever: a host that was repaired is rented again.
    score = sum(0.5 ** (max(0.0, now - at) / HALF_LIFE_S) for at, _ in failures)
    fresh = last_failure_at is not None and now - last_failure_at < FRESH_S
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
        avoided=fresh or score >= MIN_AVOIDED_SCORE,
    )


def _failed_at(run: Run) -> float:
    return run.released_at or run.ended_at or run.phase_at


def _lease_may_have_ended(run: Run) -> bool:
    """Return whether the machine's lease may have expired, which is no fault of the host."""
    if run.offer is None or run.rented_at is None:
        return False
    spec = policy.within_deadline(read_job(run.spec_json), run.meter.began_at or run.rented_at)
    lease = policy.lease_of(spec, run.offer)
    limits = [lease.life_s, lease.collect_s]
    if run.failed_in in BEFORE_TRAINING:
        limits.append(lease.ship_s)
    return _failed_at(run) >= run.rented_at + min(limits)
