"""Disk: find the ranks that share rank 0's disk. On several machines others may not."""

from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from vastrun.trainer.distributed.group import Ranks


@dataclass(frozen=True, kw_only=True)
class Disk:
    """The disk of the checkpoints: rank 0's."""

    ranks: Ranks
    shared_by: tuple[int, ...]
    """Ranks that read and write checkpoints. Shards of other ranks are copied to and from this disk."""
    first_ranks: tuple[int, ...] = ()
    """First rank on each other disk."""

    @property
    def is_shared_by_all(self) -> bool:
        return len(self.shared_by) == self.ranks.rank.world_size

    @property
    def share(self) -> tuple[int, int] | None:
        """Return this rank's index among the ranks on this disk, and their number; None: it is on another."""
        rank = self.ranks.rank.rank
        return (self.shared_by.index(rank), len(self.shared_by)) if rank in self.shared_by else None


def find_disk(folder: Path, ranks: Ranks) -> Disk:
    """Find the ranks that share a disk, by a temporary file of each rank in the folder."""
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
        shared_by=tuple(rank for rank, first in enumerate(firsts) if first == 0),
        first_ranks=tuple(sorted({first for first in firsts if first != 0})),
    )
