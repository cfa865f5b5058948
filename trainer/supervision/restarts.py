"""Restarts: whether ranks that failed are started again on this box, and how. Pure; standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vastrun.contract.job import Job
from vastrun.contract.outcome import REASONS, Meaning, StartRecord

WITHOUT_PROGRESS = 3
"""So many starts in a row that saved nothing new are the last."""

_PAUSES_S = (0.0, 0.0, 10.0)
"""Before a restart, by how many of the last starts were without progress."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """How a group of ranks is started."""

    number: int = 0
    """0: the first; each restart has one more."""
    world_size: int
    """On this node, and on each other one."""
    micro_batch: int | None = None
    """The most windows a rank may compute at once; None: nobody knows a limit."""
    gpus: tuple[str, ...] = ()
    """The GPUs to use, by UUID: some of the machine's may have failed; empty: all that are there."""
    resume: str = ""
    """The path of the checkpoint that a user's own program continues from; empty: it starts afresh."""


@dataclass(frozen=True, kw_only=True)
class Restart:
    """The ranks are started again."""

    start: Start
    after_s: float


@dataclass(frozen=True, kw_only=True)
class NoRestart:
    """No other start follows."""

    why: str


def next_start(
    job: Job,
    history: Sequence[StartRecord],
    last: Start,
    healthy: Sequence[str] | None,
    elsewhere: Sequence[int] = (),
) -> Restart | NoRestart:
    """Decide what follows on the last start of the ranks, which began as `last`.

    `healthy`: the GPUs that answer, by UUID, if known; `elsewhere`: how many do on other nodes, by node.
    """
    meaning = REASONS[history[-1].reason]
    if not meaning.is_curable:
        return NoRestart(why="the same error would recur")
    why_not = _used_up(job, history, meaning) or _does_not_fit(job, history[-1])
    if why_not is not None:
        return NoRestart(why=why_not)
    answering = fewest(healthy, elsewhere)
    world_size = world_size_on(job, answering)
    if world_size is None:
        where = " on each node" if job.nodes > 1 else ""
        return NoRestart(
            why=f"{answering or 0} GPU(s) answer, too few for this job's {job.ranks} ranks{where}"
        )
    start = Start(
        number=last.number + 1,
        world_size=world_size,
        micro_batch=_micro_batch(job, history[-1], last, world_size),
        gpus=gpus_for(job, world_size, healthy),
    )
    return Restart(start=start, after_s=_PAUSES_S[without_progress(history)])


def gpus_for(job: Job, world_size: int, healthy: Sequence[str] | None) -> tuple[str, ...]:
    """Return the GPUs for so many ranks on this node, by UUID; none where it is not known which answer.

    They are named even where enough are left: one that failed may still be there to be chosen. A program of
    the user's own may have several GPUs a rank.
    """
    return tuple((healthy or ())[: world_size if job.train else job.gpus])


def fewest(healthy: Sequence[str] | None, elsewhere: Sequence[int]) -> int | None:
    """Return how many GPUs answer on the node with the fewest, as every node has as many ranks."""
    return min([*elsewhere, *([] if healthy is None else [len(healthy)])], default=None)


def without_progress(history: Sequence[StartRecord]) -> int:
    """Count the last starts that saved nothing new.

    Those that ran out of memory do not count, as another plan follows them.
    """
    count, saved = 0, [-1, *(_saved(record) for record in history)]
    for before, record in zip(reversed(saved[:-1]), reversed(history)):
        if _saved(record) > before:
            break
        count += record.reason != "oom"
    return count


def world_size_on(job: Job, answering: int | None) -> int | None:
    """Say how many ranks to start on each node: as asked, or the most that the GPUs left can carry.

    None: none can.
    """
    if not job.gpus or answering is None or answering >= job.ranks:
        return job.ranks
    if job.train is None:  # a program of the user's own may count on its ranks
        return None
    sizes = range(answering, 0, -1)
    return next((size for size in sizes if job.train.batch % (size * job.nodes) == 0), None)


def _micro_batch(job: Job, ended: StartRecord, last: Start, world_size: int) -> int | None:
    """Return what is known to fit a rank, once something did not, or each rank has more to do."""
    if ended.reason == "oom" and job.train is not None:
        return (ended.micro_batch or 0) // 2
    return ended.micro_batch or last.micro_batch if world_size < last.world_size else last.micro_batch


def _used_up(job: Job, history: Sequence[StartRecord], meaning: Meaning) -> str | None:
    limit = job.restart_limits.get(meaning.cause or "", 0)
    if sum(REASONS[record.reason].cause == meaning.cause for record in history) > limit:
        return f"restarts allows {limit} by {meaning.cause}"
    if without_progress(history) >= WITHOUT_PROGRESS:
        return f"{WITHOUT_PROGRESS} starts in a row saved no new checkpoint"
    return None


def _does_not_fit(job: Job, record: StartRecord) -> str | None:
    """Say why a training that ran out of memory would do so again."""
    if record.reason != "oom" or job.train is None:
        return None
    if job.train.out_of_memory == "fail":
        return "train.out_of_memory is fail"
    if record.micro_batch is None:
        return "it ran out of memory before its first step"
    return "a micro-batch of 1 does not fit" if record.micro_batch <= 1 else None


def _saved(record: StartRecord) -> int:
    return -1 if record.checkpoint is None else record.checkpoint
