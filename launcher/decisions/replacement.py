"""Replacement: whether a machine is rented to replace one that left its run, and its limits. Pure.

Only nodes that train apart continue without one; the new machine receives the others' state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from vastrun.launcher.core import Cause, Phase, Run
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions import policy
from vastrun.launcher.decisions.estimates import usd
from vastrun.launcher.decisions.nodes import first_failed, is_replacement, required_nodes, total_usd

REPLACEABLE_CAUSES: frozenset[Cause] = frozenset(
    (Cause.LOST, Cause.PREEMPTED, Cause.HOST, Cause.SIGNAL, Cause.COMMUNICATION, Cause.HANG)
)
"""Causes that another machine may cure, unlike an error of the program or a full disk."""
_HOUR_S = 3600.0
_MIN_USD = 0.01


def replacement_job(
    spec: JobSpec, run: Run, other_rows: Sequence[Run], former: Run, now: float, *, free: bool
) -> JobSpec | str:
    """Return the job of a replacement, with the rest of its node's money and time.

    Otherwise returns the reason why there is none. For the runs see `is_replacement_due`. `free`: machines
    cost nothing, and are ready at once.
    """
    max_count = max_replacements(spec)
    if sum(map(is_replacement, other_rows)) >= max_count:
        return f"train.diloco.replacements allows {max_count} in all"
    if former.cause not in REPLACEABLE_CAUSES:
        return f"another one does not cure {former.cause}"
    min_s = 0.0 if free else policy.START_S + policy.MIN_TRAINING_S
    left_s = _left_s(spec, run, now)
    if left_s < min_s:
        return f"{max(0.0, left_s):.0f} s are left; a machine and one minute of training need {min_s:.0f} s"
    hours = spec.limits.hours - (now - (run.rented_at or now)) / _HOUR_S
    return _within_share(replace(spec, limits=replace(spec.limits, hours=hours)), other_rows, former, now)


def one_machine_job(spec: JobSpec) -> JobSpec:
    """Return the job of one of its machines, with its share of the money, to describe an offer."""
    return replace(spec, nodes=1, limits=replace(spec.limits, usd=policy.share_usd(spec)))


def max_replacements(spec: JobSpec) -> int:
    """Return the max. number of replacements of all nodes together."""
    return 0 if spec.train is None else spec.train.diloco.replacements


def is_replacement_due(spec: JobSpec, run: Run, other_rows: Sequence[Run], former: Run) -> bool:
    """Return whether the others continue without the node of `former`, whose machine is gone.

    `run`: node 0; `others`: the rows of all further nodes, `former` among them.
    """
    if spec.min_nodes >= spec.nodes or any(row.parent == former.id for row in other_rows):
        return False
    trains = run.phase is Phase.TRAIN and run.cause is None and run.step > 0
    left = former.phase is Phase.ENDED and former.cause is not None
    return trains and left and first_failed(required_nodes(other_rows, spec.min_nodes)) is None


def _left_s(spec: JobSpec, run: Run, now: float) -> float:
    """Return the seconds until the last step at the run's pace, or until its hours or its deadline end."""
    ends = [(run.rented_at or now) + spec.limits.hours * _HOUR_S, policy.deadline_of(spec)]
    left = [end - now for end in ends if end is not None]
    if run.steps_per_s and run.steps:
        left.append((run.steps - run.step) / run.steps_per_s)
    return min(left)


def _within_share(spec: JobSpec, other_rows: Iterable[Run], former: Run, now: float) -> JobSpec | str:
    """Return the job with the rest of its node's share of the money, or the reason why that is too little."""
    share_usd = policy.share_usd(spec)
    if share_usd is None:
        return spec
    left_usd = share_usd - total_usd((row for row in other_rows if row.node == former.node), now)
    min_usd = _MIN_USD if former.offer is None else max(_MIN_USD, policy.min_usd(former.offer))
    if left_usd < min_usd:
        return (
            f"{usd(max(0.0, left_usd))} of the node's share of limits.usd is left; loading a machine and one "
            f"minute of training cost {usd(min_usd)}"
        )
    return replace(spec, limits=replace(spec.limits, usd=left_usd * spec.nodes))
