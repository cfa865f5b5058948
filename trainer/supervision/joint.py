"""Joint: what the supervisors of all nodes saw of one launch. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from trainer.contract.outcome import Hang
from trainer.supervision.account import Watched, ends_here
from trainer.supervision.link import Link, Word
from trainer.supervision.stall import stuck


def joint(box: Path, watched: Watched, link: Link) -> Watched:
    """The same with what the other nodes saw, once their ranks have ended too: all conclude alike."""
    if link.place.nodes == 1:
        return watched
    ends = ends_here(box, watched)
    link.tell(
        ends=ends,
        failing=any(dated.failed for dated in ends),
        killed=tuple(sorted(watched.killed)),
        memory_killed=watched.memory_killed,
    )
    link.wait_until_ended()
    words = [link.word, *link.others.values()]
    return replace(
        watched,
        elsewhere=tuple(dated for word in words[1:] for dated in word.ends or ()),
        killed=frozenset(rank for word in words for rank in word.killed),
        memory_killed=any(word.memory_killed for word in words),
        stop_cause=watched.stop_cause or link.stop_cause,
        stopped_at=min((word.stopped_at for word in words if word.stopped_at is not None), default=None),
        hang=hang_of(words),
        lost=tuple(sorted(link.lost)),
    )


def hang_of(words: Sequence[Word]) -> Hang | None:
    """Of the ranks that are stuck on each node, the one that all others wait for."""
    hangs = {word.culprit: word.hang for word in words if word.culprit is not None and word.hang is not None}
    if not hangs:
        return None
    waits = tuple(wait for hang in hangs.values() for wait in hang.waits)
    return replace(hangs[stuck([*hangs])], waits=waits)
