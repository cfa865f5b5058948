"""Chaos: many runs on an emulated Vast, each with one or two troubles by seed, and what they left behind."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from benchmarks.chaos.aftermath import Aftermath
from benchmarks.chaos.launches import launch
from benchmarks.chaos.plans import plan

MAX_OVERSPEND_S = 60.0
MAX_DRIFT, MAX_MEAN_DRIFT_S = 0.01, 2.0
"""Of the bill, for all runs together; or in seconds of price, for the mean of runs that live for seconds."""
MAX_DRIFT_OF_ONE = 0.005
MAX_DRIFT_S = 5.0
"""Of one run, in seconds of its price: Vast may be asked no more often how a machine is."""
MIN_DRIFT, MIN_DRIFT_S = -0.002, -0.1
"""Never below, but for the last bytes of a connection that is closed; of a run of seconds that is more."""
MAX_SETTLED_DRIFT = 0.005
"""Either way, of each run, however long it lived: once its bill is settled, that is its cost."""
_UNSEEN_END_S = 1.0
"""Where Vast agrees to end a machine and does so later, nobody sees it in less."""
MAX_MB = 200.0
"""Of memory that a launcher may take, whatever its box says."""
MAX_GAP_S = 5.0
"""Between two looks of a guard: each second, a busy computer doubles it, what hangs takes longer."""


def run(
    *,
    runs: int = 20,
    seed: int = 0,
    parallel: int = 4,
    image: str | None = None,
    hostile: bool = False,
    minutes: float = 0.0,
) -> bool:
    """Prints a line for each run, then the sums. True when every promise was kept.

    `image`: the boxes are containers of it, and each meets a trouble of containers. `hostile`: every box
    lies, each in another way. `minutes`: how long each program works, besides seconds.
    """
    began = time.monotonic()
    found = []
    with ThreadPoolExecutor(parallel) as pool:
        plans = [
            plan(seed, number, docker=image is not None, hostile=hostile, minutes=minutes)
            for number in range(runs)
        ]
        launches = [pool.submit(launch, one, image) for one in plans]
        try:
            for over in as_completed(launches):
                found.append(over.result())
                print(found[-1], flush=True)
        finally:  # one that cannot be judged is told at once
            pool.shutdown(cancel_futures=True)
    print(_sums(found, time.monotonic() - began))
    if bad := [after.plan.number for after in found if not _is_good(after)]:
        print(f"beyond a limit             runs {', '.join(map(str, bad))}")
    return not bad and _is_true(found)


def _is_true(found: Sequence[Aftermath]) -> bool:
    """Whether the ledgers of all runs together are as high as the bill, and hardly higher."""
    watched = [after.drift_s for after in found if after.plan.watched and after.bill_usd]
    mean_s = sum(watched) / len(watched) if watched else 0.0
    return _drift(found) >= MIN_DRIFT and (_drift(found) <= MAX_DRIFT or mean_s <= MAX_MEAN_DRIFT_S)


def _is_good(after: Aftermath) -> bool:
    return (
        after.left_rented == after.left_containers == after.twice_rented == 0
        and after.ended_needlessly == 0
        and not after.wrong
        and after.lost_bytes == after.repeated_bytes == 0
        and after.evil == 0
        and after.launcher_mb <= MAX_MB
        and after.guard_gap_s <= MAX_GAP_S
        and after.overspend_s <= MAX_OVERSPEND_S
        and (after.drift >= MIN_DRIFT or after.drift_s >= MIN_DRIFT_S or _ended_unseen(after))
        and (
            not after.plan.watched or after.drift <= MAX_DRIFT_OF_ONE or after.drift_s <= _max_drift_s(after)
        )
        and (not after.plan.watched or (abs(after.settled_drift) <= MAX_SETTLED_DRIFT and not after.is_below))
    )


def _max_drift_s(after: Aftermath) -> float:
    """A machine that Vast lists again after its end counts until it is gone again: it may have run."""
    again = (one.seconds for one in after.plan.troubles if one.name == "row_reappears")
    return MAX_DRIFT_S + sum(again)


def _ended_unseen(after: Aftermath) -> bool:
    return after.plan.has_fault("destroy_delayed") and after.drift_s >= -_UNSEEN_END_S


def _drift(found: Sequence[Aftermath]) -> float:
    bill_usd = sum(after.bill_usd for after in found if after.plan.watched)
    return sum(after.ledger_usd for after in found if after.plan.watched) / bill_usd - 1 if bill_usd else 0.0


def _sums(found: Sequence[Aftermath], seconds: float) -> str:
    drifts = [after.drift for after in found]
    watched = [after for after in found if after.plan.watched]
    beyond = sum(not 0 <= after.drift < MAX_DRIFT_OF_ONE for after in watched)
    settled = [after.settled_drift for after in found]
    unsettled = sum(abs(after.settled_drift) > MAX_SETTLED_DRIFT for after in watched)
    return "\n".join(
        [
            f"chaos: {len(found)} runs in {seconds:.0f} s",
            f"machines left rented       {sum(after.left_rented for after in found)}",
            f"ended by a schedule early  {sum(after.ended_needlessly for after in found)}",
            f"machines rented twice      {sum(after.twice_rented for after in found)}",
            f"containers left            {sum(after.left_containers for after in found)}",
            f"verdicts wrong             {sum(bool(after.wrong) for after in found)}",
            f"evil files and characters  {sum(after.evil for after in found)}",
            f"log bytes lost             {sum(after.lost_bytes for after in found)}",
            f"log bytes repeated         {sum(after.repeated_bytes for after in found)}",
            f"ledger against bill        {_drift(found):+.2%} in all; "
            f"of one run {min(drifts):+.1%} to {max(drifts):+.1%}",
            f"below, or {MAX_DRIFT_OF_ONE:.1%} above    {beyond} of {len(watched)} that a launcher watched",
            f"ledger once settled        of one run {min(settled):+.2%} to {max(settled):+.2%}; "
            f"beyond {MAX_SETTLED_DRIFT:.1%} {unsettled} of {len(watched)}",
            f"charged above the most     {sum(after.is_below for after in watched)} of {len(watched)}",
            f"overspend past the limit   {max(after.overspend_s for after in found):.0f} s of price at most",
            f"memory of a launcher       {max(after.launcher_mb for after in found):.0f} MB at most",
            f"gap of a launcher's guard  {max(after.guard_gap_s for after in found):.2f} s at most",
        ]
    )
