"""Slow machine: reports a machine that trains far below its kind, and leaves it where the job allows."""

from __future__ import annotations

from dataclasses import dataclass

from vastrun.launcher.core import Cause
from vastrun.launcher.core.phases import BEFORE_TRAINING
from vastrun.launcher.decisions import policy
from vastrun.launcher.decisions.slow_machine import (
    MachineChange,
    Slowness,
    change_of,
    is_affordable_change,
    slowness_of,
)
from vastrun.launcher.decisions.speed_history import SpeedHistory, kind_of, speed_history_of
from vastrun.launcher.flow.context import RunContext
from vastrun.launcher.flow.progress import Pace


@dataclass
class SpeedWatch:
    """State of the comparison of a machine's speed with its kind's."""

    known_speeds: SpeedHistory | None = None
    """Speeds of the same kind on other hosts; None before the first look."""
    changes_left: int = 0
    is_reported: bool = False
    last: Slowness | None = None
    """Result of the last look; None: it is not slow."""
    change: MachineChange | None = None
    """Reason to continue on another machine."""


def should_change_machine(
    context: RunContext, watch: SpeedWatch, pace: Pace, *, step: int, saved: int
) -> bool:
    """Return whether the run should continue on another machine. A slow machine is reported once.

    `saved`: step of the newest checkpoint, from which another run would continue.
    """
    watch.last = _measure(context, watch, pace)
    if watch.last is None:
        return False
    if not watch.is_reported:
        watch.is_reported = True
        _report(context, watch.last)
    # One that costs nothing is this computer: there is no other.
    if watch.changes_left <= 0 or context.services.provider.free or watch.known_speeds is None:
        return False
    change = change_of(watch.last, context.spec, context.run, watch.known_speeds, step=step, saved=saved)
    if change is None or not change.pays_off:
        return False
    if not is_affordable_change(change, context.spec, context.run, context.now()):
        return False
    watch.change = change
    return True


def _measure(context: RunContext, watch: SpeedWatch, pace: Pace) -> Slowness | None:
    offer, steps_per_s = context.run.offer, pace.best_steps_per_s
    if offer is None or context.spec.resources.gpus == 0 or steps_per_s is None:
        return None
    if pace.seen_s < policy.SLOW_SEEN_S or pace.seen_steps < policy.SLOW_SEEN_STEPS:
        return None
    if watch.known_speeds is None:
        runs, provider = context.services.ledger.measured(), context.services.provider.name
        watch.known_speeds = speed_history_of(runs, provider, context.spec, excluded_host=context.run.host)
        watch.changes_left = context.spec.retry.get("slow", 0) - _count_changes(context)
    return slowness_of(kind_of(offer), steps_per_s, watch.known_speeds)


def _report(context: RunContext, slowness: Slowness) -> None:
    """Report the slow machine, once: a launcher that resumes the run finds the line in the diary."""
    diary = context.services.ledger.events(context.run.id)
    if not any(event.text.startswith(slowness.BEGINS) for event in diary):
        context.report(str(slowness))


def _count_changes(context: RunContext) -> int:
    """Return how many slow machines this chain of attempts has left."""
    run, changes = context.run, 0
    while run.parent is not None:
        run = context.services.ledger.get(run.parent)
        if run.cause is None:
            break
        # As `attempts.chain_of`: any other run was continued by the user, not tried again.
        if run.cause not in context.spec.retry and run.failed_in not in BEFORE_TRAINING:
            break
        changes += run.cause is Cause.SLOW
    return changes
