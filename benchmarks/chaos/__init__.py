"""Chaos: many runs on an emulated Vast, each with one or two troubles by seed, and what they left behind."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from benchmarks.chaos.aftermath import Aftermath
from benchmarks.chaos.plans import plan
from benchmarks.chaos.rides import ride

MOST_OVERSPEND_S = 60.0
MOST_TOO_LOW = 0.01


def run(*, runs: int = 20, seed: int = 0, parallel: int = 4) -> bool:
    """Prints a line for each run, then the sums. True when every promise was kept."""
    began = time.monotonic()
    found = []
    with ThreadPoolExecutor(parallel) as pool:
        rides = [pool.submit(ride, plan(seed, number)) for number in range(runs)]
        for over in as_completed(rides):
            found.append(over.result())
            print(found[-1], flush=True)
    print(_sums(found, time.monotonic() - began))
    return all(_is_good(after) for after in found)


def _is_good(after: Aftermath) -> bool:
    return (
        after.left_rented == 0
        and not after.wrong
        and after.lost_bytes == after.repeated_bytes == 0
        and after.overspend_s <= MOST_OVERSPEND_S
        and after.ledger_usd >= after.bill_usd * (1 - MOST_TOO_LOW)
    )


def _sums(found: Sequence[Aftermath], seconds: float) -> str:
    bill_usd = sum(after.bill_usd for after in found)
    ledger_usd = sum(after.ledger_usd for after in found)
    drift = [after.ledger_usd / after.bill_usd - 1 for after in found if after.bill_usd]
    return "\n".join(
        [
            f"chaos: {len(found)} runs in {seconds:.0f} s",
            f"machines left rented       {sum(after.left_rented for after in found)}",
            f"verdicts wrong             {sum(bool(after.wrong) for after in found)}",
            f"log bytes lost             {sum(after.lost_bytes for after in found)}",
            f"log bytes repeated         {sum(after.repeated_bytes for after in found)}",
            f"ledger against bill        {ledger_usd / bill_usd - 1 if bill_usd else 0:+.1%} in all; "
            f"of one run {min(drift, default=0):+.1%} to {max(drift, default=0):+.1%}",
            f"overspend past the limit   {max(after.overspend_s for after in found):.0f} s of price at most",
        ]
    )
