"""Batch: many short runs on one emulated Vast under one budget, driven by one launcher, faults in a tenth.

The launcher is the real one, from its command line to every call and every SSH session. Vast is the
emulator, at the pace that Vast documents. Its boxes are played by a script (tests/emulators/played_box.py): a
thousand with processes of their own would keep two cores busy for hours. For all of them time passes SPEED
times as fast. On a computer that is busy with other things CPU seconds and counts hold, the rest does not.
"""

import heapq
from collections.abc import Sequence

from benchmarks.batch_run import Seen, measure
from benchmarks.figures import Claim, max_limit, report_claims
from vastrun.launcher.batch.driver import MAX_RENTING

POINTS, PARALLEL, SPEED = 40, 10, 4.0
NONE = max_limit(0)


def run(points: int = POINTS, parallel: int = PARALLEL, speed: float = SPEED) -> bool:
    """Print what batches of 10, of so many points and of some in between took. True when all limits held."""
    sizes = [size for size in (10, 100) if size < points]
    smaller = [measure(size, min(parallel, size), speed) for size in sizes]
    seen = measure(points, parallel, speed)
    watched, waits = seen.watched, _waits_s(seen)
    claims = [
        Claim(points - sum(seen.verdicts.values()), "points without a verdict", NONE),
        Claim(seen.left, "machines left", NONE),
        Claim(seen.twice, "rented beyond one a run", NONE),
        Claim(seen.refused, "calls over the documented pace", NONE),
        Claim(max(0.0, round(watched.max_held_usd - seen.budget_usd, 4)), "dollars over the budget", NONE),
        Claim(seen.over_budget_s, "s of price billed beyond it", max_limit(60)),
        Claim(
            abs(seen.ledger_usd / seen.bill_usd - 1),
            "of the bill between it and the ledger",
            max_limit(0.005),
        ),
        Claim(watched.submit_cpu_s, f"CPU s until {points} points were submitted", max_limit(5)),
        Claim(watched.max_mb, "MB of memory", max_limit(250)),
        Claim(watched.cpu_s / seen.wall_s, f"of a core at {parallel} at once", max_limit(0.5)),
        Claim(seen.wall_s / seen.bound_s, "of the time that slots or Vast's pace allow", max_limit(1.3)),
        Claim(
            waits[int(0.99 * (len(waits) - 1))] if waits else 0.0,
            "s that a free slot waited, p99",
            max_limit(2),
        ),
    ]
    summary = (
        f"{points} points, {parallel} at once in {seen.wall_s:.0f} s at {speed:g} times the speed, "
        f"{seen.rentals} machines, {watched.max_threads} threads; {dict(seen.verdicts)}; "
        f"{sum(seen.faults.values())} faults; {seen.drift}   n=1"
    )
    print(f"submitted in             {watched.submit_s:.1f} s by this computer's clock")
    print(f"struck                   {dict(seen.faults)}")
    report_claims("batch", summary)
    passed = [report_claims("batch", "", claim) for claim in claims]
    return all([*passed, _print_growth([*smaller, seen])])


def _print_growth(found: Sequence[Seen]) -> bool:
    costs = ", ".join(f"{seen.points}: {seen.cpu_s_per_run:.3f}" for seen in found)
    growth = found[-1].cpu_s_per_run / found[0].cpu_s_per_run
    limit = max_limit(1.2) if found[-1].points >= 100 else None
    return report_claims(
        "batch, by its size", f"CPU s a run, of {costs}", Claim(growth, "of that of the smallest", limit)
    )


def _waits_s(seen: Seen) -> list[float]:
    """How long slots that had become free waited for their next runs, the shortest first.

    Not counted is the time in which as many runs as may choose a machine at once waited for Vast's pace.
    """
    free: list[float] = []
    chosen: list[float] = []
    """When the last few of those before had their machines."""
    waits = []
    for one in sorted(seen.runs, key=lambda run: run.created_at):
        if len(free) == seen.parallel:
            open_at = chosen[0] if len(chosen) == MAX_RENTING else 0.0
            waits.append(max(0.0, one.created_at - max(heapq.heappop(free), open_at)))
        heapq.heappush(free, one.ended_at or one.created_at)
        heapq.heappush(chosen, seen.had_at.get(one.id) or one.ended_at or one.created_at)
        if len(chosen) > MAX_RENTING:
            heapq.heappop(chosen)
    return sorted(waits)
