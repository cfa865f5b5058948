"""Served: `vastrun serve --driver` with a batch of many points; what it takes, and what it leaves.

Twice, because at Vast's pace of one machine in 4.5 s a batch of 10,000 points takes half a day:

- `served`: every point, in simulated time. The process, its command line, driver, ledger, outputs and pages
  are real; machines and their shells are fakes within the same process, whose memory and CPU time count. A
  run trains for a minute, and machines are rented as fast as slots are free: more often than Vast allows.
- `served, on Vast`: the batch's last points, over HTTP and SSH. Vast is the emulator at the pace that Vast
  documents, its boxes are played; of the points before, the ledger has the rows of runs that ended. A run
  trains as long as Vast's pace takes to fill all slots, so that then one ends and one starts every 4.5 s:
  that is the time in which CPU seconds are counted. With SPEED 1 nothing is scaled. With more, what counts
  by the computer's own clock (paramiko's wait for data and its keep-alive, the guard) is done less often.
"""

from __future__ import annotations

from collections import Counter

from benchmarks.figures import Claim, max_limit, report_claims
from benchmarks.served_run import OnVast, Simulated, drive_end, simulate
from vastrun.launcher.providers.vast.limits import LIMITS

POINTS, PARALLEL, SPEED = 400, 40, 2.0
MAX_MB, MAX_CORE = 400, 0.3
NONE = max_limit(0)


def run(points: int = POINTS, parallel: int = PARALLEL, speed: float = SPEED) -> bool:
    """Print what a batch of so many points took, and its end on Vast. True when all limits held."""
    return all(
        [_print_simulated(simulate(points, parallel)), _print_on_vast(drive_end(points, parallel, speed))]
    )


def _print_simulated(seen: Simulated) -> bool:
    findings, verdicts = seen.findings, Counter(str(state.verdict) for state in seen.states)
    claims = [
        Claim(seen.lost, "points without a verdict", NONE),
        Claim(seen.twice, "points or machines twice", NONE),
        Claim(findings.left, "machines left", NONE),
        Claim(seen.used.max_mb, "MB of memory", max_limit(MAX_MB)),
        Claim(seen.used.cpu_s / len(seen.states), "CPU s a point, the fakes included"),
        Claim(
            seen.used.cpu_s / len(seen.states) / LIMITS["create"].seconds,
            "of a core at Vast's pace",
            max_limit(MAX_CORE),
        ),
    ]
    summary = (
        f"{len(seen.states)} points, {findings.most_at_once} at once, {findings.rentals} machines in "
        f"{findings.seconds:.0f} simulated s, {seen.used.cpu_s:.0f} CPU s, {findings.max_threads} threads, "
        f"{findings.max_files} files; {dict(verdicts)}   n=1"
    )
    passed = [report_claims("served", summary if claim is claims[0] else "", claim) for claim in claims]
    return all(passed)


def _print_on_vast(seen: OnVast) -> bool:
    claims = [
        Claim(seen.lost, "points without a verdict", NONE),
        Claim(seen.twice, "points or machines twice", NONE),
        Claim(seen.left, "machines left", NONE),
        Claim(seen.refused, "calls over the documented pace", NONE),
        Claim(seen.used.max_mb, "MB of memory", max_limit(MAX_MB)),
        Claim(seen.cpu_s / seen.seconds, "of a core", max_limit(MAX_CORE)),
    ]
    summary = (
        f"the last {seen.points} of {len(seen.states)} points, {seen.at_once:.0f} machines at once during "
        f"{seen.seconds:.0f} s, {seen.max_threads} threads, {seen.max_files} files   n=1"
    )
    passed = [
        report_claims("served, on Vast", summary if claim is claims[0] else "", claim) for claim in claims
    ]
    return all(passed)
