"""Evidence: read the proof that a training and its stages leave in files, and end its W&B run.

After a rank was killed, W&B would report its run as crashed; a separate process ends that run. Standard
library only.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from vastrun.contract import layout
from vastrun.contract.checkpoint_folder import DamagedError, verify
from vastrun.contract.job import OUTPUTS_PREFIXES, Job, JobSuccess, matching_paths, working_folder
from vastrun.contract.outcome import (
    Check,
    CheckpointEnd,
    Name,
    Outcome,
    RankEnd,
    StageEnd,
    StartRecord,
    WandbRun,
)
from vastrun.contract.program import read_records
from vastrun.contract.records import parse_json, read_as, write_json
from vastrun.contract.texts import how_many
from vastrun.onstart.logged_error import count_tracebacks, last_raised
from vastrun.onstart.run_module import module_command
from vastrun.onstart.supervision.diagnosis import Diagnosis
from vastrun.onstart.supervision.environment import rank_environment
from vastrun.onstart.supervision.processes import kill_descendants, start_logged
from vastrun.onstart.supervision.progress import Loss, last_loss
from vastrun.onstart.supervision.restarts import Start
from vastrun.onstart.supervision.wandb_runs import WANDB_LOG, end_runs

_TRACKER_TIMEOUT_S = 40.0
"""Timeout, longer than W&B's own timeouts: the machine costs money meanwhile."""
_KILL_S = 2.0

Stamp = tuple[int, int, int]
"""Size in bytes, and times of the last change of content and inode in nanoseconds."""


@dataclass(frozen=True, kw_only=True)
class FinalRecord:
    """The record that rank 0 writes when all ranks have finished."""

    step: int
    loss: Loss
    scores: dict[str, float] | None
    stage: str
    missed: str | None
    """Conditions of the gate that the scores miss; None: it passed."""


def read_final(box: Path) -> FinalRecord | None:
    """Read the final record; None when it is missing or malformed."""
    found = _json(box / layout.FINAL)
    if not isinstance(found.get("step"), int):
        return None
    scores = found.get("scores")
    if isinstance(scores, dict):  # the finite ones: JSON has no other numbers
        scores = {k: float(v) for k, v in scores.items() if isinstance(v, (int, float)) and math.isfinite(v)}
    return FinalRecord(
        step=found["step"],
        loss=Loss.of(found["loss"]) if "loss" in found else last_loss(box),
        scores=scores if isinstance(scores, dict) else None,
        stage=str(found.get("stage")),
        missed=str(found["missed"]) if found.get("missed") else None,
    )


def read_wandb(box: Path) -> WandbRun | None:
    """Read the W&B run. All ranks have ended: a run that still counts as running has crashed."""
    try:
        run: WandbRun = read_as(WandbRun, _json(box / layout.WANDB))
    except ValueError:
        return None
    return replace(run, state="crashed") if run.state == "running" else run


def installed_packages() -> dict[str, str]:
    """Return the versions of this Python and of the packages that it finds, by name."""
    found = (path.stem.rpartition("-") for folder in sys.path for path in Path(folder).glob("*.dist-info"))
    versions = {name: version for name, _, version in reversed(list(found))}  # the first in the path counts
    return {"python": platform.python_version(), **dict(sorted(versions.items())[:4000])}


def first_reported_step(box: Path) -> int | None:
    """Return the step of the first line of the metrics; None: there is none."""
    with suppress(OSError, ValueError, KeyError, TypeError), (box / layout.METRICS).open("rb") as file:
        step = json.loads(file.readline(8192))["step"]
        return step if isinstance(step, int) and step >= 0 else None
    return None


def printed_errors(box: Path, job: Job, diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return a line for each rank that printed tracebacks, of a program whose ranks all exited 0."""
    if job.program.keeps_records or diagnosis.reason != "finished":
        return ()
    logs = {end.rank: box / layout.RAW_LOGS / f"rank-{end.rank}.log" for end in diagnosis.ranks[:100]}
    found = {rank: (count_tracebacks(log), last_raised(log)) for rank, log in logs.items()}
    return tuple(
        f"rank {rank} exited with 0 and printed {how_many(count, 'traceback')}, the last: {last.exception}"
        for rank, (count, last) in found.items()
        if count and last is not None
    )


def read_checkpoint(box: Path) -> CheckpointEnd | None:
    """Verify every file of the newest complete checkpoint, and return its record."""
    latest = _json(box / layout.CHECKPOINTS / "latest.json")
    if not {"step", "path"} <= set(latest):
        return None
    folder = box / layout.CHECKPOINTS / str(latest["path"])
    try:
        verify(folder)
        intact = True
    except DamagedError:
        intact = False
    return CheckpointEnd(step=latest["step"], path=os.path.relpath(folder, box), intact=intact)


def stamp_files(success: JobSuccess | None, box: Path) -> Mapping[Path, Stamp]:
    """Record the files of `success.files` that exist before the program starts: they prove nothing."""
    patterns = success.files if success else ()
    return {path: _stamp(path) for pattern in patterns for path in _matching_files(pattern, box)}


def run_checks(
    success: JobSuccess | None, box: Path, ranks: Sequence[RankEnd], before: Mapping[Path, Stamp]
) -> tuple[Check, ...]:
    """Check each condition of the job's `success:` section. `before`: files that existed before."""
    if success is None:
        return ()
    checks = [("files", *_check_file(pattern, box, before)) for pattern in success.files]
    if success.log is not None:
        # The raw log: lines of the merged one have a prefix, and some are the supervisor's.
        checks.append(("log", *_check_log(success.log, box / layout.RAW_LOGS / "rank-0.log")))
    if success.steps is not None:
        checks.append(("steps", *_check_steps(success.steps, ranks)))
    if success.exit_code is not None:
        codes = sorted({str(end.exit_code) for end in ranks})
        holds = all(end.exit_code == success.exit_code for end in ranks)
        checks.append(("exit_code", holds, f"exit codes of the ranks: {', '.join(codes)}"))
    return tuple(Check(name=name, holds=holds, text=text) for name, holds, text in checks)


def _check_steps(required: int, ranks: Sequence[RankEnd]) -> tuple[bool, str]:
    done = min((end.step for end in ranks), default=0)
    silent = [str(end.rank) for end in ranks if not end.step and not end.activity]
    if not silent:
        return done >= required, f"every rank reached step {done} of {required}"
    who = f"rank {', '.join(silent)} reported no step"
    if len(silent) == len(ranks):
        who = "no rank reported a step"
    return False, f"{who}: the program must call beat(step) in its loop, on every rank"


def _check_file(pattern: str, box: Path, before: Mapping[Path, Stamp]) -> tuple[bool, str]:
    found = _matching_files(pattern, box)
    if not found:
        where = "" if pattern.startswith(OUTPUTS_PREFIXES) else " in the code folder or in $VASTRUN_OUTPUTS"
        return False, f"no file matches {pattern}{where}"
    sizes = [path.stat().st_size for path in found if _stamp(path) != before.get(path)]
    if not sizes:
        old = os.path.relpath(found[0], box)
        return False, f"{old} existed before the start and was not written since: {pattern}"
    if not min(sizes):
        return False, f"a file that matches {pattern} is empty"
    return True, f"{pattern} has {how_many(len(sizes), 'file')}, {sum(sizes)} bytes"


def _matching_files(pattern: str, box: Path) -> list[Path]:
    """Find matching files in the code folder or the outputs; a link may not lead out of these."""
    outputs = box / layout.OUTPUTS
    named = next((pattern.removeprefix(name) for name in OUTPUTS_PREFIXES if pattern.startswith(name)), None)
    places = [(working_folder(box), pattern), (outputs, pattern)] if named is None else [(outputs, named)]
    return sorted(
        {
            path
            for folder, glob in places
            for path in matching_paths(folder, glob.lstrip("/") or "*")
            if path.is_file() and path.resolve().is_relative_to(folder.resolve())
            # A file that is not downloaded proves nothing.
            if all(map(layout.should_download, path.relative_to(folder).parts))
        }
    )


def _stamp(path: Path) -> Stamp:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def _check_log(pattern: str, log: Path) -> tuple[bool, str]:
    try:
        expression = re.compile(pattern)
    except re.error as error:
        return False, f"{pattern} is not a regular expression: {error}"
    with suppress(FileNotFoundError), log.open(encoding="utf-8", errors="replace") as lines:
        while line := lines.readline(8192):
            if expression.search(line):
                return True, f"rank 0 printed: {line.strip()[:200]}"
    return False, f"rank 0 printed nothing that matches {pattern}"


def _json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; empty where there is none."""
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads(path.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}
    return {}


def finish_wandb_run(box: Path, job: Job, outcome: Outcome, exit_code: int) -> Outcome:
    """End the W&B run if rank 0 did not, and return the outcome with its new state."""
    environment = rank_environment(job, Start(world_size=job.ranks), box, os.environ)
    if not job.program.keeps_records:
        # A user's program has failed too where it lacks a proof of its success.
        is_proven = all(check.holds for check in outcome.checks)
        code = exit_code if is_proven else exit_code or 1
        run = end_runs(box, job, environment, started_at=outcome.started_at, exit_code=code)
        kill_descendants(within_s=_KILL_S)
        if run is None:
            return outcome
        with suppress(OSError):
            write_json(box / layout.WANDB, asdict(run))
        return replace(outcome, wandb=run)
    run, module = outcome.wandb, job.program.wandb_closer
    truth: Literal["finished", "failed"] = "finished" if exit_code == 0 else "failed"
    if run is None or run.mode == "off" or run.state == truth or module is None:
        return outcome
    if run.mode == "offline" and truth == "failed" and run.state == "crashed":
        # A run without an end is a failed one for `wandb sync`.
        return replace(outcome, wandb=replace(run, state=truth))
    with suppress(subprocess.TimeoutExpired, OSError):
        command = (*module_command(module), str(exit_code))
        start_logged(command, box / WANDB_LOG, environment, cwd=box).wait(_TRACKER_TIMEOUT_S)
    kill_descendants(within_s=_KILL_S)
    return replace(outcome, wandb=read_wandb(box))


def stage_of(box: Path) -> str | None:
    """Return the stage that the ranks of the last start trained; None: they never said."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        name: str = read_as(Name, parse_json((box / layout.STAGE).read_text(encoding="utf-8"))["stage"])
        return name
    return None


def with_gate(box: Path, diagnosis: Diagnosis) -> Diagnosis:
    """Return the diagnosis of a start that finished with scores that miss its gate; else the same one.

    Only the first node has scores; the others follow its decision.
    """
    final = read_final(box) if diagnosis.reason == "finished" else None
    if final is None or final.missed is None:
        return diagnosis
    detail = f"stage {final.stage} missed its gate: {final.missed}"
    return replace(diagnosis, reason="gate_missed", detail=detail)


def stage_ends(box: Path, job: Job, starts: Sequence[StartRecord]) -> tuple[StageEnd, ...]:
    """Return how far each stage of a job with several came; empty for any other job."""
    if len(job.program.stages) < 2:
        return ()
    records = {record.stage: record for record in read_records(box)}
    ends = []
    for span in job.program.stages:
        of_it = [start for start in starts if start.stage == span.name]
        # The ranks may have reached a step, and been restarted from an earlier one.
        step = of_it[-1].steps_done if of_it else 0
        end = StageEnd(
            name=span.name,
            steps_done=min(max(step - span.first_step, 0), span.steps),
            steps_planned=span.steps,
            seconds=sum(max(0.0, start.ended_at - start.started_at) for start in of_it),
        )
        if record := records.get(span.name):
            scores, missed, run_id = dict(record.scores), record.missed, record.run_id
            end = replace(end, steps_done=span.steps, scores=scores, missed=missed, run_id=run_id)
        ends.append(end)
    return tuple(ends)
