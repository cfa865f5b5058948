"""Conclude: an Outcome from how the starts ended and what lies on the disk. Standard library only."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from trainer.contract import layout
from trainer.contract.job import Job
from trainer.contract.outcome import Outcome, StartRecord
from trainer.supervision.diagnosis import Diagnosis, Watched
from trainer.supervision.evidence import (
    NOTHING,
    Stamp,
    read_checkpoint,
    read_final,
    read_wandb,
    run_checks,
)
from trainer.supervision.peers import PeersError
from trainer.supervision.progress import last_loss
from trainer.supervision.stop import stopped_by


def start_record_of(box: Path, watched: Watched, diagnosis: Diagnosis) -> StartRecord:
    """Return what is remembered of a start of the ranks when another has followed."""
    return StartRecord(
        reason=diagnosis.reason,
        detail=diagnosis.detail,
        world_size=watched.world_size,
        micro_batch=_number(box / layout.PLAN, "micro_batch"),
        steps_done=_steps_done(box, diagnosis),
        checkpoint=_number(box / layout.CHECKPOINTS / "latest.json", "step"),
        first_failure=diagnosis.first_failure,
        started_at=watched.started_at,
        ended_at=time.time(),
    )


def conclude(
    box: Path,
    job: Job,
    watched: Watched,
    diagnosis: Diagnosis,
    starts: Sequence[StartRecord] = (),
    before: Mapping[Path, Stamp] = NOTHING,
) -> Outcome:
    """Gather the evidence of a training that is over.

    The last of `starts` is the one that was watched; `before` are files that were there at the start.
    """
    final = read_final(box)
    loss = final.loss if final else last_loss(box)
    return Outcome(
        kind="train" if job.train else "command",
        reason=diagnosis.reason,
        detail=diagnosis.detail,
        started_at=starts[0].started_at if starts else watched.started_at,
        ended_at=time.time(),
        world_size=watched.world_size,
        ranks=diagnosis.ranks,
        first_failure=diagnosis.first_failure,
        hang=watched.hang,
        stop_cause=watched.stop_cause,
        final_record=final is not None,
        steps_done=_steps_done(box, diagnosis),
        steps_planned=job.train.steps if job.train else None,
        last_loss=loss.value,
        loss_finite=loss.finite,
        checkpoint=read_checkpoint(box),
        scores=final.scores if final else None,
        wandb=read_wandb(box),
        # What a program proves lies on the first node.
        checks=run_checks(job.success if watched.place.is_host else None, box, diagnosis.ranks, before),
        starts=tuple(starts),
    )


def stopped_between(outcome: Outcome, stop_cause: str) -> Outcome:
    """Return the outcome when somebody asked to stop before the ranks were started again."""
    detail = f"{stopped_by(stop_cause)} before the ranks were restarted, after: {outcome.detail}"
    return replace(outcome, reason="stopped", stop_cause=stop_cause, detail=detail)


def nothing_started(error: BaseException, job: Job | None, started_at: float) -> Outcome:
    """Return the evidence when the supervisor itself could not do its work."""
    alone = isinstance(error, PeersError)
    return Outcome(
        kind="train" if job and job.train else "command",
        reason="communication" if alone else "error",
        detail=str(error) if alone else f"the supervisor failed: {type(error).__name__}: {error}",
        started_at=started_at,
        ended_at=time.time(),
        world_size=job.ranks if job else 0,
        ranks=(),
    )


def _steps_done(box: Path, diagnosis: Diagnosis) -> int:
    final = read_final(box)
    return min([rank.step for rank in diagnosis.ranks] + ([final.step] if final else []))


def _number(path: Path, key: str) -> int | None:
    """Read a whole number from a JSON file, if it is there."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        value = json.loads(path.read_text(encoding="utf-8"))[key]
        return value if isinstance(value, int) else None
    return None
