"""From the command to the first optimiser step, beside `torchrun` by hand on data that is there."""

from benchmarks.figures import Claim, Pair, max_limit, show
from benchmarks.launches import timed_launches

ROUNDS = 5
SLOWEST = max_limit(1.0)


def run() -> bool:
    """Print one line."""
    vastrun_s, bare = timed_launches(ROUNDS)
    pair = Pair(
        candidate=[launch.first_step_s for launch in vastrun_s],
        baseline=[launch.first_step_s for launch in bare],
    )
    return show("to the first step", pair, "s", Claim(pair.ratio, "of torchrun by hand", SLOWEST))
