"""Restarts: decide whether and how failed ranks restart on this box. Pure; standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from vastrun.contract.job import Job
from vastrun.contract.outcome import REASONS, StartRecord

MAX_STARTS_WITHOUT_PROGRESS = 3
"""Consecutive starts without a new checkpoint after which the ranks are not restarted."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """The options of one start of the ranks."""

    number: int = 0
    """Number of the start; 0: the first."""
    world_size: int
    """Ranks on this node, and on each other one."""
    micro_batch: int | None = None
    """Maximum windows that a rank may compute at once; None: no known limit."""
    gpus: tuple[str, ...] = ()
    """UUIDs of the GPUs to use, as some of the machine may have failed; empty: all of them."""
    resume: str = ""
    """Path of the checkpoint from which a user's program continues; empty: a fresh start."""
    after_s: float = 0.0
    """Seconds to wait before it, from the decision for it."""


def next_start(
    job: Job,
    history: Sequence[StartRecord],
    last: Start,
    healthy: Sequence[str] | None,
    elsewhere: Sequence[int] = (),
) -> Start | str:
    """Return the next start of the ranks after the `last` one, or why there is none.

    `healthy`: UUIDs of the GPUs that respond, if known; `elsewhere`: their number on each other node.
    """
    is_before_last = any(span.name == history[-1].stage for span in job.program.stages[:-1])
    if history[-1].reason == "finished" and is_before_last:
        # A new plan: the micro-batch that fitted was that of another model.
        return replace(last, number=last.number + 1, micro_batch=None, after_s=0.0)
    why_not = _reason_against(job, history)
    if why_not is not None:
        return why_not
    # All nodes have equally many ranks: the node with the fewest GPUs decides.
    healthy_count = min([*elsewhere, *([] if healthy is None else [len(healthy)])], default=None)
    world_size = world_size_on(job, healthy_count)
    if world_size is None:
        where = " on each node" if job.nodes > 1 else ""
        return f"too few GPUs respond for this job's {job.ranks} ranks{where}: {healthy_count or 0}"
    return Start(
        number=last.number + 1,
        world_size=world_size,
        micro_batch=_micro_batch(job, history[-1], last, world_size),
        gpus=gpus_for(job, world_size, healthy),
        after_s=(0.0, 0.0, 10.0)[without_progress(history)],
    )


def gpus_for(job: Job, world_size: int, healthy: Sequence[str] | None) -> tuple[str, ...]:
    """Return the UUIDs of the GPUs for `world_size` ranks on this node; empty if the healthy are unknown.

    They are set even where enough are left, since a failed GPU may still be visible. A user's program may use
    several GPUs per rank.
    """
    return tuple((healthy or ())[: world_size if job.program.global_batch_size else job.gpus])


def without_progress(history: Sequence[StartRecord]) -> int:
    """Count the last consecutive starts without a new checkpoint.

    Starts that ran out of memory do not count, since the next start has another plan, nor those that only
    scored a stage.
    """
    count, saved = 0, [-1, *(-1 if record.checkpoint is None else record.checkpoint for record in history)]
    for (before, after), record in reversed([*zip(pairwise(saved), history, strict=True)]):
        if after > before:
            break
        count += record.reason not in ("oom", "finished")
    return count


def world_size_on(job: Job, healthy_count: int | None) -> int | None:
    """Return the number of ranks to start on each node: the job's, or the maximum for the remaining GPUs.

    None: no number fits.
    """
    if not job.gpus or healthy_count is None or healthy_count >= job.ranks:
        return job.ranks
    batch = job.program.global_batch_size
    if batch is None:
        return None
    sizes = range(healthy_count, 0, -1)
    return next((size for size in sizes if batch % (size * job.nodes) == 0), None)


def _micro_batch(job: Job, ended: StartRecord, last: Start, world_size: int) -> int | None:
    """Return a micro-batch that fits, after one did not, or when each rank gets a larger share."""
    if ended.reason == "oom" and job.program.out_of_memory == "halve":
        return (ended.micro_batch or 0) // 2
    return ended.micro_batch or last.micro_batch if world_size < last.world_size else last.micro_batch


def _reason_against(job: Job, history: Sequence[StartRecord]) -> str | None:
    """Return why a restart would not help, or is not allowed; None if it may help."""
    last, meaning = history[-1], REASONS[history[-1].reason]
    if not meaning.is_curable:
        return "the same error would recur"
    limits = job.program.max_restarts if job.restarts is None else job.restarts
    limit = limits.get(meaning.cause or "", 0)
    if sum(REASONS[record.reason].cause == meaning.cause for record in history) > limit:
        return f"restarts allows {limit} by {meaning.cause}"
    if without_progress(history) >= MAX_STARTS_WITHOUT_PROGRESS:
        return f"{MAX_STARTS_WITHOUT_PROGRESS} starts in a row saved no new checkpoint"
    if last.reason != "oom" or job.program.out_of_memory == "again":
        return None
    if job.program.out_of_memory == "fail":
        return f"{job.program.kind}.out_of_memory is fail"
    if last.micro_batch is None:
        return "it ran out of memory before its first step"
    return "a micro-batch of 1 does not fit" if last.micro_batch <= 1 else None
