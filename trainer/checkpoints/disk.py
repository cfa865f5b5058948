"""Disk: which ranks see the files that rank 0 writes. On several machines those of the others may not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

from vastrun.trainer.distributed.group import Ranks


@dataclass(frozen=True, kw_only=True)
class Disk:
    """The disk that checkpoints lie on: that of rank 0."""

    ranks: Ranks
    seen_by: tuple[int, ...]
    """The ranks that read and write checkpoints. Shards of the others are brought there, and from there."""
    carriers: tuple[int, ...] = ()
    """The first rank on each disk but rank 0's."""

    @property
    def is_seen_by_all(self) -> bool:
        return len(self.seen_by) == self.ranks.rank.world_size

    @property
    def share(self) -> tuple[int, int] | None:
        """This rank's place among those that see it, and how many they are; None: it does not."""
        rank = self.ranks.rank.rank
        return (self.seen_by.index(rank), len(self.seen_by)) if rank in self.seen_by else None


def find_disk(folder: Path, ranks: Ranks) -> Disk:
    """Find who shares a disk, by a file that each rank lays into the folder and takes away again."""
    word, world_size = ranks.broadcast_object(uuid4().hex), ranks.rank.world_size
    tokens = [folder / f".{word}.{rank}.part" for rank in range(world_size)]
    folder.mkdir(parents=True, exist_ok=True)
    tokens[ranks.rank.rank].touch()
    ranks.wait_for_all()
    first = next(rank for rank, token in enumerate(tokens) if token.exists())
    firsts = ranks.all_gather_objects(first)
    tokens[ranks.rank.rank].unlink()
    return Disk(
        ranks=ranks,
        seen_by=tuple(rank for rank, first in enumerate(firsts) if first == 0),
        carriers=tuple(sorted({first for first in firsts if first != 0})),
    )


def everywhere(disk: Disk) -> Disk:
    """Return the disk as if all ranks saw it: each has what it reads on a disk of its own."""
    return replace(disk, seen_by=tuple(range(disk.ranks.rank.world_size)))
