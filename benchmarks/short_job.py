"""A job of 20 steps: how long it goes on after its last step, and as a whole beside the bare script."""

import statistics

from benchmarks.figures import Claim, Pair, max_limit, show, show_alone
from benchmarks.launches import STEPS, timed_launches

ROUNDS = 5
AFTER_S = max_limit(5.0)
WHOLE = max_limit(1.5)


def run() -> bool:
    """Print two lines."""
    vastrun_s, bare = timed_launches(ROUNDS)
    after_s = [launch.whole_s - launch.last_step_s for launch in vastrun_s]
    whole = Pair(
        candidate=[launch.whole_s for launch in vastrun_s], baseline=[launch.whole_s for launch in bare]
    )
    claim = Claim(statistics.median(after_s), "s with scores, outputs and verdict", AFTER_S)
    return all(
        [
            show_alone("after the last step", after_s, "s", claim),
            show(f"a job of {STEPS} steps", whole, "s", Claim(whole.ratio, "of the bare script", WHOLE)),
        ]
    )
