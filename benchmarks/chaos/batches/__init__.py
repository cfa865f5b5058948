"""Batches under chaos: each on an emulated Vast of its own, with troubles by seed, and what they left."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from benchmarks.chaos import MAX_GAP_S
from benchmarks.chaos.batches.aftermath import BatchAftermath
from benchmarks.chaos.batches.drives import drive

MAX_OVER_BUDGET_S = 60.0
MIN_DRIFT, MIN_DRIFT_S = -0.002, -0.1
"""Never below, but for the last bytes of connections that are closed."""
_UNSEEN_END_S = 1.0
"""Where Vast agrees to end a machine and does so later, nobody sees it in less."""
MAX_DRIFT, MAX_DRIFT_S = 0.005, 5.0
"""Of all machines of one batch, in seconds of price for each: many runs share what Vast was asked lately."""
MAX_MB = 250.0


def run(*, batches: int, seed: int = 0, parallel: int = 2, first: int = 0) -> bool:
    """Print a line for each batch, then the sums. True when every promise was kept."""
    began, found = time.monotonic(), []
    with ThreadPoolExecutor(parallel) as pool:
        drives = [pool.submit(drive, seed, first + number) for number in range(batches)]
        for over in as_completed(drives):
            found.append(over.result())
            print(found[-1], flush=True)
    print(_sums(found, time.monotonic() - began))
    return all(map(is_good, found))


def is_good(after: BatchAftermath) -> bool:
    """Return whether every promise was kept."""
    unseen = any(trouble.name == "destroy_delayed" for trouble in after.plan.troubles)
    return (
        not after.wrong
        and after.left_rented == after.twice_rented == 0
        and after.lost_bytes == after.repeated_bytes == 0
        and not after.over_reserved_usd
        and after.over_budget_s <= MAX_OVER_BUDGET_S
        and after.launcher_mb <= MAX_MB
        and after.guard_gap_s <= MAX_GAP_S
        and (after.drift >= MIN_DRIFT or after.drift_s >= (-_UNSEEN_END_S if unseen else MIN_DRIFT_S))
        and (not after.watched or after.drift <= MAX_DRIFT or after.drift_s <= MAX_DRIFT_S)
    )


def _sums(found: Sequence[BatchAftermath], seconds: float) -> str:
    points = sum(sum(after.verdicts.values()) for after in found)
    machines = sum(after.machines for after in found)
    drifts = [after.drift for after in found]
    return "\n".join(
        [
            f"chaos: {len(found)} batches of {points} points on {machines} machines in {seconds:.0f} s",
            f"machines left rented       {sum(after.left_rented for after in found)}",
            f"machines rented twice      {sum(after.twice_rented for after in found)}",
            f"verdicts or points wrong   {sum(len(after.wrong) for after in found)}",
            f"log bytes lost             {sum(after.lost_bytes for after in found)}",
            f"log bytes repeated         {sum(after.repeated_bytes for after in found)}",
            f"reserved beyond a budget   {sum(after.over_reserved_usd > 0 for after in found)}",
            f"bill beyond a budget       {max(one.over_budget_s for one in found):.0f} s of price at most",
            f"ledger against bill        of one batch {min(drifts):+.1%} to {max(drifts):+.1%}",
            f"memory of a launcher       {max(after.launcher_mb for after in found):.0f} MB at most",
            f"gap of a launcher's guard  {max(after.guard_gap_s for after in found):.2f} s at most",
        ]
    )
