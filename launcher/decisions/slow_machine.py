"""Slow machines: whether one trains far below its kind's speed, and whether a change pays off."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import ClassVar

from vastrun.launcher.core import Run
from vastrun.launcher.core.bills import cost_usd
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions import policy
from vastrun.launcher.decisions.job_shape import steps_of
from vastrun.launcher.decisions.speed_history import MachineKind, Speed, SpeedHistory, kind_text

_USUAL_BOOT_S = 300.0
"""Seconds from rent to ready of an unknown host."""


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
        return f"{self.BEGINS}{share:.2f} of what {kind_text(self.kind)} has shown ({runs})"


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
    boots = [run.boot_s] if run.boot_s is not None else list(elsewhere.boot_s.values())
    ready_s = median(boots or [_USUAL_BOOT_S]) + policy.START_S
    return MachineChange(
        here_s=max(0, steps - step) / slowness.steps_per_s,
        there_s=policy.CHANGE_S + ready_s + max(0, steps - saved) / slowness.shown.steps_per_s,
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
