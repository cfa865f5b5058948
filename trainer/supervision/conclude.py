"""Conclude: an Outcome from how the attempts ended and what lies on the disk. Standard library only."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from trainer.contract import layout
from trainer.contract.job import Job
from trainer.contract.outcome import Attempt, Outcome
from trainer.supervision.account import Account, Watched, account_of
from trainer.supervision.evidence import (
    NOTHING,
    Stamp,
    read_checkpoint,
    read_final,
    read_wandb,
    run_checks,
)
from trainer.supervision.link import LinkError
from trainer.supervision.progress import last_loss
from trainer.supervision.stop import stopped_by


def attempt_of(box: Path, watched: Watched) -> Attempt:
    """What is remembered of a launch when another has followed."""
    account = account_of(box, watched)
    return Attempt(
        reason=account.reason,
        detail=account.detail,
        world_size=watched.world_size,
        micro_batch=_number(box / layout.PLAN, "micro_batch"),
        steps_done=_steps_done(box, account),
        checkpoint=_number(box / layout.CHECKPOINTS / "latest.json", "step"),
        first_failure=account.first_failure,
        started_at=watched.started_at,
        ended_at=time.time(),
    )


def conclude(
    box: Path,
    job: Job,
    watched: Watched,
    attempts: Sequence[Attempt] = (),
    before: Mapping[Path, Stamp] = NOTHING,
) -> Outcome:
    """Gather the evidence of a training that is over.

    The last of `attempts` is the one that was watched; `before` are files that were there at the start.
    """
    account = account_of(box, watched)
    final = read_final(box)
    loss = final.loss if final else last_loss(box)
    return Outcome(
        kind="train" if job.train else "command",
        reason=account.reason,
        detail=account.detail,
        started_at=attempts[0].started_at if attempts else watched.started_at,
        ended_at=time.time(),
        world_size=watched.world_size,
        ranks=account.ranks,
        first_failure=account.first_failure,
        hang=watched.hang,
        stop_cause=watched.stop_cause,
        final_record=final is not None,
        steps_done=_steps_done(box, account),
        steps_planned=job.train.steps if job.train else None,
        last_loss=loss.value,
        loss_finite=loss.finite,
        checkpoint=read_checkpoint(box),
        scores=final.scores if final else None,
        wandb=read_wandb(box),
        # What a program proves lies on the first node.
        checks=run_checks(job.success if watched.place.is_host else None, box, account.ranks, before),
        attempts=tuple(attempts),
    )


def stopped_between(outcome: Outcome, stop_cause: str) -> Outcome:
    """The same when somebody asked to stop before the ranks were started again."""
    detail = f"{stopped_by(stop_cause)} before the ranks were restarted, after: {outcome.detail}"
    return replace(outcome, reason="stopped", stop_cause=stop_cause, detail=detail)


def nothing_started(error: BaseException, job: Job | None, started_at: float) -> Outcome:
    """The evidence when the supervisor itself could not do its work."""
    alone = isinstance(error, LinkError)
    return Outcome(
        kind="train" if job and job.train else "command",
        reason="communication" if alone else "error",
        detail=str(error) if alone else f"the supervisor failed: {type(error).__name__}: {error}",
        started_at=started_at,
        ended_at=time.time(),
        world_size=job.ranks if job else 0,
        ranks=(),
    )


def _steps_done(box: Path, account: Account) -> int:
    final = read_final(box)
    return min([rank.step for rank in account.ranks] + ([final.step] if final else []))


def _number(path: Path, key: str) -> int | None:
    """A whole number in a JSON file, if it is there."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        value = json.loads(path.read_text(encoding="utf-8"))[key]
        return value if isinstance(value, int) else None
    return None
