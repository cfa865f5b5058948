"""Disk: which ranks see the files that rank 0 writes. On several machines those of the others may not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

from trainer.distributed.group import Ranks


@dataclass(frozen=True, kw_only=True)
class Disk:
    """The disk that checkpoints lie on: that of rank 0."""

    ranks: Ranks
    seen_by: tuple[int, ...]
    """The ranks that read and write checkpoints. Shards of the others are brought there, and from there."""
    first_on_disk: tuple[int, ...] = ()
    """The first rank of each machine."""

    @property
    def is_seen_by_all(self) -> bool:
        return len(self.seen_by) == self.ranks.rank.world_size

    @property
    def carriers(self) -> list[int]:
        """The first rank on each disk but rank 0's."""
        return [rank for rank in self.first_on_disk if rank not in self.seen_by]

    @property
    def share(self) -> tuple[int, int] | None:
        """This rank's place among those that see it, and how many they are; None: it does not."""
        rank = self.ranks.rank.rank
        return (self.seen_by.index(rank), len(self.seen_by)) if rank in self.seen_by else None


def find_disk(folder: Path, ranks: Ranks) -> Disk:
    """Find who shares this disk, by a file that rank 0 lays into the folder and takes away again."""
    token = folder / ranks.told_by_first(f".{uuid4().hex}.part")
    if ranks.rank.is_first:
        folder.mkdir(parents=True, exist_ok=True)
        token.touch()
    ranks.wait_for_all()
    seen = ranks.told_by_all(token.exists())
    if ranks.rank.is_first:
        token.unlink()
    is_first_here = ranks.told_by_all(ranks.rank.local_rank == 0)
    return Disk(
        ranks=ranks,
        seen_by=tuple(rank for rank, sees in enumerate(seen) if sees),
        first_on_disk=tuple(rank for rank, is_first in enumerate(is_first_here) if is_first),
    )


def everywhere(disk: Disk) -> Disk:
    """Return the disk as if all ranks saw it: each has what it reads on a disk of its own."""
    return replace(disk, seen_by=tuple(range(disk.ranks.rank.world_size)))
