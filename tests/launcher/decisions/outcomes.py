"""What a machine leaves of a run that ended well, to be spoilt by the tests."""

from dataclasses import replace

from vastrun.contract.outcome import CheckpointEnd, Outcome, RankEnd
from vastrun.launcher.core import Cause, Evidence

GOOD = Outcome(
    kind="train",
    reason="finished",
    detail="",
    started_at=0.0,
    ended_at=1.0,
    world_size=2,
    ranks=(RankEnd(rank=0, exit_code=0), RankEnd(rank=1, exit_code=0)),
    final_record=True,
    steps_done=10,
    steps_planned=10,
    last_loss=0.1,
    loss_finite=True,
    checkpoint=CheckpointEnd(step=10, path="run/checkpoints/step-000010", intact=True),
)


def evidence(outcome: Outcome | None, **changes: object) -> Evidence:
    whole = Evidence(outcome=outcome, exit_code=0, damaged=())
    return replace(whole, **changes)  # type: ignore[arg-type]


def good(**changes: object) -> Evidence:
    return evidence(replace(GOOD, **changes))  # type: ignore[arg-type]


STOPS = (
    ("stopped", Cause.STOPPED),
    ("pruned", Cause.PRUNED),
    ("time_limit", Cause.TIME_LIMIT),
    ("money_limit", Cause.MONEY_LIMIT),
)
"""Who a machine says stopped its run, and the cause that this makes."""
