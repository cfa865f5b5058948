"""Slow machine: reports a machine that trains far below its kind, and leaves it where the job allows it."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import ClassVar

from vastrun.launcher.core import Cause, Run
from vastrun.launcher.core.bills import cost_usd
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.phases import BEFORE_TRAINING
from vastrun.launcher.decisions import policy
from vastrun.launcher.decisions.history import (
    MachineKind,
    Speed,
    SpeedHistory,
    kind_of,
    kind_text,
    speed_history_of,
)
from vastrun.launcher.decisions.job_shape import steps_of
from vastrun.launcher.flow.context import RunContext
from vastrun.launcher.flow.pace import Pace, work_of

_USUAL_BOOT_S = 300.0
"""Seconds from rent to ready of an unknown host."""


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


@dataclass(frozen=True, kw_only=True)
class Slowness:
    """Speed of a machine that trains far below its kind's."""

    kind: MachineKind
    steps_per_s: float
    shown: Speed
    """Speed of other hosts of its kind."""
    BEGINS: ClassVar[str] = "trains at "

    def __str__(self) -> str:
        runs = f"{self.shown.steps_per_s:.3g} steps/s, {self.shown.runs} runs"
        share = self.steps_per_s / self.shown.steps_per_s
        return f"{self.BEGINS}{share:.2f} of the speed of earlier runs on {kind_text(self.kind)} ({runs})"


@dataclass(frozen=True, kw_only=True)
class MachineChange:
    """Remaining time of a run on its slow machine, and on another one of its kind."""

    here_s: float
    there_s: float
    """Seconds there, with saving, loading another machine and repeating the steps since the checkpoint."""
    usd_per_hour: float
    loading_usd: float
    """USD of another machine for disk and traffic before it trains."""

    @property
    def pays_off(self) -> bool:
        """True if the change saves enough time, and enough money."""
        here_usd = self.here_s / 3600 * self.usd_per_hour
        there_usd = self.there_s / 3600 * self.usd_per_hour + self.loading_usd
        gain = policy.CHANGE_GAIN
        return self.there_s <= self.here_s * gain and there_usd <= here_usd * gain

    def __str__(self) -> str:
        return (
            f"{self.here_s / 60:.0f} min are left on it, about {self.there_s / 60:.0f} min with another one"
        )


def slowness_of(kind: MachineKind, steps_per_s: float, elsewhere: SpeedHistory) -> Slowness | None:
    """Compare the speed of a machine with its kind on other hosts; None: it is not slow."""
    shown = elsewhere.speeds.get(kind)
    if shown is None or shown.runs < policy.SLOW_RUNS:
        return None
    if steps_per_s >= shown.steps_per_s * policy.SLOW_SHARE:
        return None
    return Slowness(kind=kind, steps_per_s=steps_per_s, shown=shown)


def change_of(
    slowness: Slowness, spec: JobSpec, run: Run, elsewhere: SpeedHistory, *, step: int, saved: int
) -> MachineChange | None:
    """Estimate the effect of another machine at that step; None: the job's last step is unknown.

    `saved`: step of the newest checkpoint, from which the next run would continue.
    """
    steps = steps_of(spec)
    if steps is None or slowness.steps_per_s <= 0:
        return None
    # Both speeds are those of mean steps, where a job has several stages.
    done_work, saved_work = work_of(spec, step), work_of(spec, saved)
    boots = [run.boot_s] if run.boot_s is not None else list(elsewhere.boot_s.values())
    ready_s = median(boots or [_USUAL_BOOT_S]) + policy.START_S
    return MachineChange(
        here_s=max(0, steps - done_work) / slowness.steps_per_s,
        there_s=policy.CHANGE_S + ready_s + max(0, steps - saved_work) / slowness.shown.steps_per_s,
        usd_per_hour=run.usd_per_hour,
        loading_usd=0.0 if run.offer is None else run.offer.loading_usd,
    )


def is_affordable_change(change: MachineChange, spec: JobSpec, run: Run, now: float) -> bool:
    """Return whether the job's money and time allow another machine."""
    deadline = policy.deadline_of(spec)
    if deadline is not None and now + change.there_s > deadline:
        return False
    limit_usd = policy.share_usd(spec)
    if limit_usd is None or run.offer is None:
        return True
    stop_usd = policy.CHANGE_S / 3600 * run.usd_per_hour
    left_usd = limit_usd - cost_usd(run, now) - stop_usd
    there_usd = change.there_s / 3600 * run.usd_per_hour + change.loading_usd
    return left_usd >= max(policy.min_usd(run.offer), there_usd)
