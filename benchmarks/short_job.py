"""A job of 20 steps: the command to its first step, and as a whole, beside torchrun by hand; and its end."""

import statistics

from benchmarks.figures import Claim, Pair, max_limit, show, show_alone
from benchmarks.launches import STEPS, timed_launches

ROUNDS = 5
AFTER_S = max_limit(5.0)
WHOLE = max_limit(1.5)
FIRST_STEP = max_limit(1.0)


def run() -> bool:
    """Print three lines."""
    ours, bare = timed_launches(ROUNDS)
    after_s = [launch.whole_s - launch.last_step_s for launch in ours]
    claim = Claim(statistics.median(after_s), "s with scores, outputs and verdict", AFTER_S)
    shown = [show_alone("after the last step", after_s, "s", claim)]
    for name, key, limit in (
        ("to the first step", "first_step_s", FIRST_STEP),
        (f"{STEPS} steps", "whole_s", WHOLE),
    ):
        candidate, baseline = ([getattr(launch, key) for launch in launches] for launches in (ours, bare))
        pair = Pair(candidate=candidate, baseline=baseline)
        shown.append(show(name, pair, "s", Claim(pair.ratio, "of torchrun by hand", limit)))
    return all(shown)
