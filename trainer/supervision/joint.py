"""Joint: what the supervisors of all nodes saw of one launch. Standard library only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from trainer.supervision.account import Watched, ends_here
from trainer.supervision.link import Link
from trainer.supervision.stall import first_stuck


def joint(box: Path, watched: Watched, link: Link) -> Watched:
    """The same with what the other nodes saw, once their ranks have ended too: all conclude alike."""
    ends = ends_here(box, watched)
    link.tell(
        ends=ends,
        failing=any(dated.failed for dated in ends),
        killed=tuple(sorted(watched.killed)),
        memory_killed=watched.memory_killed,
        hang=watched.hang,
    )
    link.wait_until_ended()
    words = link.others.values()
    hangs = [hang for hang in (watched.hang, *(word.hang for word in words)) if hang is not None]
    stops = [at for at in (watched.stopped_at, *(word.stopped_at for word in words)) if at is not None]
    return replace(
        watched,
        stop_cause=watched.stop_cause or link.stop_cause,
        stopped_at=min(stops, default=None),
        elsewhere=tuple(dated for word in words for dated in word.ends or ()),
        killed=watched.killed.union(*(word.killed for word in words)),
        memory_killed=watched.memory_killed or any(word.memory_killed for word in words),
        hang=first_stuck(hangs) if hangs else None,
        lost=tuple(sorted(link.lost)),
    )
