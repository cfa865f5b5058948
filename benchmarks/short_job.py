"""A job of 20 steps: how long it goes on after its last step, and as a whole beside the bare script."""

from __future__ import annotations

import statistics

from benchmarks.figures import Claim, Pair, at_most, show, show_alone
from benchmarks.launches import STEPS, rides

ROUNDS = 5
AFTER_S = at_most(5.0)
WHOLE = at_most(1.5)


def run() -> bool:
    """Print two lines."""
    ours, bare = rides(ROUNDS)
    after_s = [ride.whole_s - ride.last_step_s for ride in ours]
    whole = Pair(ours=[ride.whole_s for ride in ours], theirs=[ride.whole_s for ride in bare])
    claim = Claim(statistics.median(after_s), "s with scores, outputs and verdict", AFTER_S)
    return all(
        [
            show_alone("after the last step", after_s, "s", claim),
            show(f"a job of {STEPS} steps", whole, "s", Claim(whole.ratio, "of the bare script", WHOLE)),
        ]
    )
