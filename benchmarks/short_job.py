"""A job of 20 steps: how long it goes on after its last step, and as a whole beside the bare script."""

from __future__ import annotations

import statistics

from benchmarks.figures import Claim, Pair, at_most, show, show_alone
from benchmarks.launches import STEPS, timed_launches

ROUNDS = 5
AFTER_S = at_most(5.0)
WHOLE = at_most(1.5)


def run() -> bool:
    """Print two lines."""
    ours, bare = timed_launches(ROUNDS)
    after_s = [launch.whole_s - launch.last_step_s for launch in ours]
    whole = Pair(ours=[launch.whole_s for launch in ours], theirs=[launch.whole_s for launch in bare])
    claim = Claim(statistics.median(after_s), "s with scores, outputs and verdict", AFTER_S)
    return all(
        [
            show_alone("after the last step", after_s, "s", claim),
            show(f"a job of {STEPS} steps", whole, "s", Claim(whole.ratio, "of the bare script", WHOLE)),
        ]
    )
