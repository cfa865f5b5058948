"""Measurement of a speed-up: a job trains for a while on 1, 2, 4 ... ranks of this computer."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from vastrun.contract.records import as_json, read_json, write_atomically
from vastrun.launcher.commands.rehearse import Rehearsal
from vastrun.launcher.core import Bundle
from vastrun.launcher.core.errors import UsageError, VastrunError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.speedup import (
    Speedup,
    StepSpeed,
    measured_job,
    measured_s,
    rank_counts,
    speedup_key,
    speedup_of,
    step_speed,
)

MEASURE_S = 20.0
"""Seconds of training that are measured for each number of ranks."""
_MAX_TRAIN_S = 1800.0
"""Max. seconds until a training has been measured, its start included."""
_POLL_INTERVAL_S = 1.0
_MAX_BYTES = 1 << 16
MAX_STORED = 200
"""Max. number of speed-ups that are kept, the newest."""


class MeasurementError(VastrunError):
    """A training ended before its speed was measured."""


@dataclass(frozen=True, kw_only=True)
class SpeedupMeasurement:
    """Trains a job on several numbers of ranks, one after the other, in the folder of a rehearsal."""

    rehearsal: Rehearsal
    steps: tuple[str, ...]
    """Steps of a box before the training, which is the last."""
    pack: Callable[[JobSpec], Bundle]
    secrets: Callable[[JobSpec], bytes]
    show: Callable[[str], None]
    """Shows new lines of the log."""
    report: Callable[[str], None]
    """Shows what is measured next."""
    seconds: float = MEASURE_S
    now: Callable[[], float] = field(default=time.monotonic)

    def measure(self, spec: JobSpec, gpu: str) -> Speedup:
        """Return the speed-up of the job. Raises UsageError, MeasurementError."""
        check_measurable(spec)
        assert spec.train is not None
        batch = spec.train.global_batch
        speeds: dict[int, StepSpeed] = {}
        alone: dict[int, StepSpeed] = {}
        for ranks in rank_counts(spec):
            self.report(f"measuring {_ranks_text(ranks)} with {batch} windows")
            speeds[ranks] = self._train(measured_job(spec, ranks, batch))
            if ranks > 1:
                self.report(f"measuring 1 rank alone with {batch // ranks} windows, the share of each")
                with suppress(MeasurementError):  # one GPU may not hold the job
                    alone[ranks] = self._train(measured_job(spec, 1, batch // ranks))
        return speedup_of(gpu, batch, speeds, alone)

    def _train(self, spec: JobSpec) -> StepSpeed:
        self.rehearsal.prepare(self.pack(spec), fresh=True)
        secrets = self.secrets(spec)
        until = self.now() + _MAX_TRAIN_S

        looked_at = self.now()

        def is_measured() -> bool:
            nonlocal looked_at
            if self.now() - looked_at < _POLL_INTERVAL_S:
                return False
            looked_at = self.now()
            return looked_at > until or measured_s(self.rehearsal.metrics()) >= self.seconds

        for step in self.steps[:-1]:
            if code := self.rehearsal.run_step(step, secrets, self.show):
                raise MeasurementError(f"the step {step} failed with exit code {code}: its log is above")
        self.rehearsal.run_step(self.steps[-1], secrets, self.show, is_enough=is_measured)
        speed = step_speed(self.rehearsal.metrics())
        if speed is None:
            ranks = _ranks_text(spec.ranks_per_node)
            raise MeasurementError(f"the training on {ranks} ended before its speed was known; see its log")
        return speed


def check_measurable(spec: JobSpec) -> None:
    """Raise UsageError for a job whose speed-up is not measured."""
    if spec.train is None:
        raise UsageError("speedup works for the onboard trainer only; this job has its own command")
    if spec.nodes > 1:
        raise UsageError(f"speedup uses one machine; the job has {spec.nodes}", hint="--set nodes=1")
    if rank_counts(spec)[-1] != spec.ranks_per_node:
        batch, ranks = spec.train.global_batch, spec.ranks_per_node
        raise UsageError(
            f"train.batch: expected a multiple of the {ranks} ranks, got {batch}",
            hint=f"--set train.batch={max(1, batch // ranks) * ranks}",
        )
    if rank_counts(spec) == [1]:
        raise UsageError(
            "speedup compares several ranks; the job has one",
            hint="--set resources.gpus=2" if spec.resources.gpus else "--set ranks=2",
        )


def _ranks_text(ranks: int) -> str:
    return "1 rank" if ranks == 1 else f"{ranks} ranks"


class SpeedupStore:
    """Speed-ups in the cache folder, a file for each job and model of GPU."""

    def __init__(self, cache: Path) -> None:
        self.folder = cache / "speedups"

    def load(self, spec: JobSpec) -> dict[str, Speedup]:
        """Return the speed-ups of the job that were measured, by kind of GPU."""
        found: dict[str, Speedup] = {}
        for path in sorted(self.folder.glob(f"{speedup_key(spec)}.*.json"))[:MAX_STORED]:
            with suppress(OSError, ValueError), path.open("rb") as file:
                speedup: Speedup = read_json(Speedup, file.read(_MAX_BYTES))
                found[speedup.gpu] = speedup
        return found

    def save(self, spec: JobSpec, speedup: Speedup) -> None:
        """Keep the speed-up in place of an earlier one, and remove the oldest others beyond a limit."""
        kind = re.sub(r"[^0-9A-Za-z]+", "-", speedup.gpu) or "cpu"
        write_atomically(self.folder / f"{speedup_key(spec)}.{kind}.json", as_json(speedup))
        for path in sorted(self.folder.glob("*.json"), key=_changed_at, reverse=True)[MAX_STORED:]:
            path.unlink(missing_ok=True)


def _changed_at(path: Path) -> float:
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0
