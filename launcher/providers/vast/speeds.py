"""Training speed of a job on each offer: measured by similar runs, else scaled from them, else guessed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from vastrun.launcher.core import Forecast
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.market import Basis
from vastrun.launcher.decisions.history import MachineKind, Speed, SpeedHistory, kind_text
from vastrun.launcher.decisions.job_shape import steps_of
from vastrun.launcher.decisions.workload import roofline
from vastrun.launcher.providers.vast.rows import OfferRow


@dataclass(frozen=True)
class _Pace:
    """Steps per second on an offer, and the basis of the number."""

    steps_per_s: float
    basis: Basis
    runs: int
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class Speeds:
    """Speed estimates for a set of offers."""

    spec: JobSpec
    typical_dlperf: float
    learned: Mapping[MachineKind, Speed]
    known: SpeedHistory
    dlperf: Mapping[MachineKind, float]
    """Vast's score by kind of machine, for kinds that have one."""

    def forecast(self, row: OfferRow, ready_s: float) -> Forecast:
        """Estimate the job's time on that offer, which is ready to train `ready_s` after the rental.

        A job that says no last step takes its whole time limit where the typical machine is had, and so does
        one of whose speed nothing is known. One without GPUs is as fast with any of them.
        """
        limit_s, steps = self.spec.limits.hours * 3600, steps_of(self.spec)
        pace = self._pace(row) if self.spec.resources.gpus else self._pace_anywhere()
        if pace is None or steps is None:
            return Forecast(
                ready_s=ready_s,
                train_s=limit_s / self._share_of_typical(row, pace),
                basis="guess",
                steps_per_s=None if pace is None else pace.steps_per_s,
            )
        return Forecast(ready_s=ready_s, train_s=steps / pace.steps_per_s, **vars(pace))

    def _pace(self, row: OfferRow) -> _Pace | None:
        """Return the measured speed; else scale it by the number of GPUs, else by Vast's score."""
        kind = (row.gpu_name, row.gpus)
        if kind in self.learned:
            speed = self.learned[kind]
            return _Pace(speed.steps_per_s, "measured", speed.runs)
        same_gpu = [other for other in self.learned if other[0] == row.gpu_name and other[1] > 0]
        if same_gpu:
            nearest = min(same_gpu, key=lambda other: _ratio(other[1], row.gpus))
            return self._scaled(nearest, row.gpus / nearest[1])
        scored = [other for other in self.learned if other in self.dlperf]
        if scored and row.dlperf > 0:
            nearest = min(scored, key=lambda other: _ratio(self.dlperf[other], row.dlperf))
            return self._scaled(nearest, row.dlperf / self.dlperf[nearest])
        return self._estimated(row)

    def _pace_anywhere(self) -> _Pace | None:
        """Return the mean measured speed on all kinds of machines; None without measurements."""
        known = self.learned.values()
        if not known:
            return None
        seen = median(speed.steps_per_s for speed in known)
        return _Pace(seen, "measured", sum(speed.runs for speed in known))

    def _estimated(self, row: OfferRow) -> _Pace | None:
        """Estimate the speed from a step's estimated work and the GPU's peak performance."""
        workloads = self.known.workloads
        if workloads is None:
            return None
        found = roofline(workloads, self.spec, row.gpu_name, row.gpu_memory_gb, self.known.efficiency)
        if found is None:
            return None
        share = f"{found.mfu:.0%}" if found.mfu >= 0.01 else "under 1%"
        return _Pace(found.steps_per_s, "roofline", 0, f"{share} of its peak")

    def _scaled(self, kind: MachineKind, factor: float) -> _Pace:
        speed = self.learned[kind]
        return _Pace(speed.steps_per_s * factor, "scaled", speed.runs, kind_text(kind))

    def _share_of_typical(self, row: OfferRow, pace: _Pace | None) -> float:
        """Return the offer's speed relative to a typical one: by its pace if known, else by its score."""
        if self.spec.resources.gpus == 0:
            return 1.0
        ratios = [
            self.learned[kind].steps_per_s / score
            for kind, score in self.dlperf.items()
            if kind in self.learned
        ]
        if pace is not None and ratios:
            return pace.steps_per_s / (median(ratios) * self.typical_dlperf)
        # There is a reason why an offer has no score.
        return (row.dlperf or self.typical_dlperf / 2) / self.typical_dlperf


def estimate_speeds(rows: Sequence[OfferRow], spec: JobSpec, known: SpeedHistory) -> Speeds:
    """Build estimates for these offers; earlier runs calibrate Vast's scores."""
    scores: dict[MachineKind, list[float]] = {}
    for row in rows:
        if row.dlperf > 0:
            scores.setdefault((row.gpu_name, row.gpus), []).append(row.dlperf)
    return Speeds(
        spec=spec,
        typical_dlperf=median([row.dlperf for row in rows if row.dlperf > 0] or [1.0]),
        learned=known.speeds,
        known=known,
        dlperf={kind: median(found) for kind, found in scores.items()},
    )


def _ratio(one: float, other: float) -> float:
    """Return the ratio of the larger to the smaller number."""
    return abs(math.log(one / other))
