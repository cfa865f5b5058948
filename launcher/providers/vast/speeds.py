"""How long the job trains on each offer: as runs of its shape showed, else scaled from them, else a guess."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from vastrun.launcher.core import Forecast
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.market import Basis
from vastrun.launcher.decisions.job_shape import steps_of
from vastrun.launcher.decisions.speed_history import MachineKind, Speed, SpeedHistory, kind_text
from vastrun.launcher.decisions.workload import roofline
from vastrun.launcher.providers.vast.rows import OfferRow


@dataclass(frozen=True)
class _Pace:
    """Steps a second on an offer, and how that is known."""

    steps_per_s: float
    basis: Basis
    runs: int
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class Speeds:
    """What is known of the speed of all offers together."""

    spec: JobSpec
    typical_dlperf: float
    learned: Mapping[MachineKind, Speed]
    known: SpeedHistory
    dlperf: Mapping[MachineKind, float]
    """Vast's score of each kind of machine that is on offer, where it has one."""

    def forecast(self, row: OfferRow, ready_s: float) -> Forecast:
        """Say how long the job takes on that offer, which is ready to train `ready_s` after its rent.

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
        """As measured, else scaled from the same GPU in another number, else from another by Vast's score."""
        kind = (row.gpu_name, row.gpus)
        if kind in self.learned:
            speed = self.learned[kind]
            return _Pace(speed.steps_per_s, "measured", speed.runs)
        alike = [other for other in self.learned if other[0] == row.gpu_name and other[1] > 0]
        if alike:
            nearest = min(alike, key=lambda other: _apart(other[1], row.gpus))
            return self._scaled(nearest, row.gpus / nearest[1])
        scored = [other for other in self.learned if other in self.dlperf]
        if scored and row.dlperf > 0:
            nearest = min(scored, key=lambda other: _apart(self.dlperf[other], row.dlperf))
            return self._scaled(nearest, row.dlperf / self.dlperf[nearest])
        return self._estimated(row)

    def _pace_anywhere(self) -> _Pace | None:
        """As measured on machines of all kinds; None before that."""
        known = self.learned.values()
        if not known:
            return None
        seen = median(speed.steps_per_s for speed in known)
        return _Pace(seen, "measured", sum(speed.runs for speed in known))

    def _estimated(self, row: OfferRow) -> _Pace | None:
        """By what a step was foretold to take, and what the GPU could do at best."""
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
        """How fast the offer is against the typical one: by its pace if that is known, else by its score."""
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


def speeds_of(rows: Sequence[OfferRow], spec: JobSpec, known: SpeedHistory) -> Speeds:
    """Estimate these offers' speeds: what a score is worth is learned where one was used before."""
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


def _apart(one: float, other: float) -> float:
    """How many times as much, whichever is more."""
    return abs(math.log(one / other))
