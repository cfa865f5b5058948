"""Progress: tracks the step and activity of every rank, for `run/status.json`. Standard library only."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vastrun.contract import layout
from vastrun.contract.outcome import IdleGpus
from vastrun.contract.program import finished_steps
from vastrun.contract.records import write_json
from vastrun.contract.reports import Beat, read_beat
from vastrun.onstart.optional_files import read_end
from vastrun.onstart.supervision.processes import innermost_program
from vastrun.onstart.supervision.rank_process import RankProcess
from vastrun.onstart.supervision.stall import RankProgress


@dataclass(kw_only=True)
class ProgressTracker:
    """Reads the heartbeats and records when each last changed, by this machine's monotonic clock."""

    box: Path
    _moved: dict[int, tuple[Beat | None, float]] = field(default_factory=dict)

    def ranks_progress(self, processes: Iterable[RankProcess]) -> tuple[RankProgress, ...]:
        found, now = list[RankProgress](), time.monotonic()
        for rank in (process.rank for process in processes if process.exit_code is None):
            beat = beat_of(self.box, rank)
            if rank not in self._moved or self._moved[rank][0] != beat:
                self._moved[rank] = (beat, now)
            step, activity = (beat.step, beat.activity) if beat else (0, "")
            still_s = now - self._moved[rank][1]
            found.append(RankProgress(rank=rank, step=step, activity=activity, still_s=still_s))
        return tuple(found)


def beat_of(box: Path, rank: int) -> Beat | None:
    """Read the rank's last heartbeat."""
    return read_beat(box / layout.HEARTBEATS / f"rank-{rank}")


def pid_of(box: Path, process: RankProcess) -> int:
    """Return the pid of the program that beats; else of the rank's process or its shell's child."""
    beat = beat_of(box, process.rank)
    return beat.pid if beat else innermost_program(process.pid)


def write_status(
    box: Path,
    ranks_progress: Iterable[RankProgress],
    processes: Iterable[RankProcess],
    *,
    world_size: int,
    steps: int,
    idle_gpus: IdleGpus | None = None,
) -> None:
    """Write the progress of the training to `run/status.json`; with a full disk the old file stays.

    Its step is the one that every rank has reached: that of the finished stages, else 0, while some of the
    `world_size` ranks here have not started. Where no rank reports one, it is the step of the curves.
    """
    first_step = finished_steps(box)
    still_s = {rank_progress.rank: rank_progress.still_s for rank_progress in ranks_progress}
    ranks = list[dict[str, Any]]()
    for process in processes:
        beat = beat_of(box, process.rank)
        rank = {
            "rank": process.rank,
            "pid": None if process.exit_code is not None else beat.pid if beat else process.pid,
            "step": beat.step if beat else 0,
            "activity": beat.activity if beat else "",
            "age_s": round(still_s.get(process.rank, 0.0), 1),
        }
        ranks.append(rank)
    step = min(rank["step"] for rank in ranks) if len(ranks) >= max(1, world_size) else 0
    if not any(rank["step"] or rank["activity"] for rank in ranks):  # none reports its steps
        step = logged_step(box)
    status = {
        "at": round(time.time(), 3),
        "step": max(first_step, step),
        "steps": steps,
        "loss": last_loss(box).value,
        "ranks": ranks,
        "idle_gpus": None if idle_gpus is None else asdict(idle_gpus),
    }
    with contextlib.suppress(OSError):
        write_json(box / layout.STATUS, status, durable=False)


@dataclass(frozen=True, kw_only=True)
class Loss:
    value: float | None = None
    finite: bool | None = None
    """True for a finite loss; None: no loss was recorded."""

    @classmethod
    def of(cls, recorded: object) -> Loss:
        """Read a JSON value; without a finite number, `value` is None."""
        if isinstance(recorded, (int, float)) and math.isfinite(recorded):
            return cls(value=float(recorded), finite=True)
        return cls(value=None, finite=False)


def last_loss(box: Path) -> Loss:
    """Return the loss of the last complete metrics line that has one."""
    record = _last_record(box, "loss")
    return Loss.of(record["loss"]) if record else Loss()


def logged_step(box: Path) -> int:
    """Return the step of the newest metrics line, wherever a program logs its curves; 0: there is none."""
    step = _last_record(box, "step").get("step")
    return step if type(step) is int and step > 0 else 0


def _last_record(box: Path, key: str) -> dict[str, Any]:
    """Return the last complete metrics line with that key; empty: there is none."""
    for line in reversed(read_end(box / layout.METRICS, 1 << 14).decode("utf-8", "replace").splitlines()):
        with contextlib.suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict) and key in record:
                return record
    return {}
