"""How long the job trains on each offer: by what its own earlier runs showed, else by Vast's score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from launcher.core.job import JobSpec
from launcher.decisions.speed_history import Kind, Speed, SpeedHistory
from launcher.providers.vast.rows import OfferRow


@dataclass(frozen=True, kw_only=True)
class Speeds:
    """What is known of the speed of all offers together."""

    spec: JobSpec
    typical_dlperf: float
    learned: Mapping[Kind, Speed]
    steps_per_dlperf: float | None
    """Steps a second for each point of the score, by what was learned; None: nothing was."""

    def hours(self, row: OfferRow) -> tuple[float, str]:
        """Estimate the hours to train, and how that is known.

        A job without GPUs gains nothing by a faster one.

        With nothing learned, the job takes its whole time limit where `typical_dlperf` is had.
        """
        limit, train = self.spec.limits.hours, self.spec.train
        if self.spec.resources.gpus == 0:
            return limit, "the most it may take"
        # There is a reason why an offer has no score.
        dlperf = row.dlperf or self.typical_dlperf / 2
        if self.steps_per_dlperf is None:
            return limit * self.typical_dlperf / dlperf, f"dlperf {row.dlperf:.0f}"
        learned = self.learned.get((row.gpu_name, row.gpus))
        pace = learned.steps_per_s if learned else self.steps_per_dlperf * dlperf
        typical = self.steps_per_dlperf * self.typical_dlperf
        hours = train.steps / pace / 3600 if train else limit * typical / pace
        how = f"learned from {_runs(learned.runs)}" if learned else f"dlperf {row.dlperf:.0f}"
        return hours, f"{pace:.3g} steps/s, {how}"


def speeds_of(rows: Sequence[OfferRow], spec: JobSpec, known: SpeedHistory) -> Speeds:
    """Return the speeds. What a score is worth is learned where a kind of machine that has one was used."""
    ratios = [
        known.speeds[row.gpu_name, row.gpus].steps_per_s / row.dlperf
        for row in rows
        if row.dlperf > 0 and (row.gpu_name, row.gpus) in known.speeds
    ]
    return Speeds(
        spec=spec,
        typical_dlperf=median([row.dlperf for row in rows if row.dlperf > 0] or [1.0]),
        learned=known.speeds,
        steps_per_dlperf=median(ratios) if ratios else None,
    )


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"
