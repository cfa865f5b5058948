"""Replacing: whether a machine is rented in place of one that left its run, and within which limits. Pure.

Only nodes that train apart go on without one; the new machine is sent the state of the others.
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
"""What another machine may not do again. An error of the program's own, or a full disk, it would."""
_HOUR_S = 3600.0
_MIN_USD = 0.01


def replacement_job(
    spec: JobSpec, run: Run, others: Sequence[Run], former: Run, now: float, *, free: bool
) -> JobSpec | str:
    """Return the job of a machine that is due: with what is left of its node's money and time.

    Else why there is none. For the runs see `is_due`. `free`: machines cost nothing, and are there at once.
    """
    most = max_replacements(spec)
    if sum(map(is_replacement, others)) >= most:
        return f"train.diloco.replacements allows {most} in all"
    if former.cause not in REPLACEABLE_CAUSES:
        return f"another one does not cure {former.cause}"
    min_s = 0.0 if free else policy.START_S + policy.MIN_KEPT_S
    left_s = _left_s(spec, run, now)
    if left_s < min_s:
        return f"{max(0.0, left_s):.0f} s are left; a machine and one minute of training need {min_s:.0f} s"
    hours = spec.limits.hours - (now - (run.rented_at or now)) / _HOUR_S
    return _within_share(replace(spec, limits=replace(spec.limits, hours=hours)), others, former, now)


def one_machine_job(spec: JobSpec) -> JobSpec:
    """Return the job of one of its machines, with that one's share of the money: so its offer is told."""
    return replace(spec, nodes=1, limits=replace(spec.limits, usd=policy.share_usd(spec)))


def max_replacements(spec: JobSpec) -> int:
    """Return how many machines may come in place of others, of all nodes together."""
    return 0 if spec.train is None else spec.train.diloco.replacements


def is_replacement_due(spec: JobSpec, run: Run, others: Sequence[Run], former: Run) -> bool:
    """Tell whether the others train on without the node of `former`, whose machine is gone.

    `run`: node 0; `others`: the rows of all further nodes, `former` among them.
    """
    if spec.min_nodes >= spec.nodes or any(row.parent == former.id for row in others):
        return False
    trains = run.phase is Phase.TRAIN and run.cause is None and run.step > 0
    left = former.phase is Phase.ENDED and former.cause is not None
    return trains and left and first_failed(required_nodes(others, spec.min_nodes)) is None


def _left_s(spec: JobSpec, run: Run, now: float) -> float:
    """Until the last step at the run's pace, where that is known, or until its hours or its deadline end."""
    ends = [(run.rented_at or now) + spec.limits.hours * _HOUR_S, policy.deadline_of(spec)]
    left = [end - now for end in ends if end is not None]
    if run.steps_per_s and run.steps:
        left.append((run.steps - run.step) / run.steps_per_s)
    return min(left)


def _within_share(spec: JobSpec, others: Iterable[Run], former: Run, now: float) -> JobSpec | str:
    """The job with what the machines of the node before left of its share of the money."""
    share_usd = policy.share_usd(spec)
    if share_usd is None:
        return spec
    left_usd = share_usd - total_usd((row for row in others if row.node == former.node), now)
    min_usd = _MIN_USD if former.offer is None else max(_MIN_USD, policy.min_usd(former.offer))
    if left_usd < min_usd:
        return (
            f"{usd(max(0.0, left_usd))} of the node's share of limits.usd is left; loading a machine and one "
            f"minute of training cost {usd(min_usd)}"
        )
    return replace(spec, limits=replace(spec.limits, usd=left_usd * spec.nodes))
