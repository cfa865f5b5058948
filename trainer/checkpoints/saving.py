"""Saving: the training goes on while a thread of each rank writes the rank's share."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import torch.distributed as torch_dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException

from trainer.checkpoints.contents import Record
from trainer.checkpoints.disk import find_disk
from trainer.checkpoints.folder import Folder
from trainer.checkpoints.reading import Found, load_tensors, newest_intact
from trainer.checkpoints.writing import Planner, Staging, Writer, share_of
from trainer.contract.errors import ConfigError, SaveError
from trainer.distributed.group import Ranks

# A disk may be slow, and nobody waits for it; a peer that died is noticed at once, by its connection.
_SLOWEST_WRITE = timedelta(hours=1)


class Checkpointer:
    """The checkpoints of one run. All ranks call each method at the same place.

    Raises ConfigError when ranks hold parts (`sharded`) and cannot all write them to one disk.
    """

    def __init__(self, folder: Folder, ranks: Ranks, *, sharded: bool) -> None:
        self._folder = folder
        self._disk = find_disk(folder.path, ranks)
        self._first = ranks.rank.is_first
        if sharded and not self._disk.is_seen_by_all:
            text = "train.strategy: checkpoints of fsdp2 need a disk that all machines share"
            raise ConfigError(text, told_elsewhere=not self._first)
        # Of the thread alone: two threads on one group would take each other's messages.
        self._group = torch_dist.new_group(backend="gloo", timeout=_SLOWEST_WRITE)
        self._staging = Staging()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._room: Future[None] | None = None
        self._saving: Future[None] | None = None
        self._step: int | None = None
        if self._first:
            folder.sweep()

    @property
    def step(self) -> int | None:
        """Of the newest that was saved, or is being saved; None: there is none of this run."""
        return self._step

    def newest(self, *, else_of: Path) -> Found | None:
        """Find the newest intact checkpoint of this run, else of another folder; None: there is none.

        Raises ConfigError when there are some, and none is intact.
        """
        return newest_intact((self._folder.path, else_of), self._disk)

    def load(self, found: Found, tensors: Mapping[str, Tensor]) -> None:
        """Load a checkpoint as `load_tensors` does; it is not saved again."""
        load_tensors(found.path, tensors, self._disk)
        if found.path.parent == self._folder.path:
            self._step = found.record.step

    def prepare(self, tensors: Mapping[str, Tensor]) -> None:
        """Get the memory for copies of these meanwhile, so that the first save is as short as the others."""
        self._room = self._thread.submit(self._staging.make_room, self._share_of(tensors))

    def save(self, record: Record, tensors: Mapping[str, Tensor], *, durable: bool) -> None:
        """Copy the state and begin to write it; when `durable`, return once it is on the disk.

        Waits for the save before, so that none is left out. Raises SaveError: on all ranks, when one of them
        could not write.
        """
        self.wait()
        if record.step != self._step:
            self._step = record.step
            share = self._share_of(tensors)
            # Room was asked for as the training began: only a very early save still has to wait for it.
            if self._room is not None:
                self._room.result()
            copies = self._staging.copy(share)
            self._saving = self._thread.submit(self._write, record, share, copies)
        if durable:
            self.wait()

    def poll(self) -> None:
        """Report a save that has ended meanwhile. Costs nothing, waits for nothing. Raises SaveError."""
        if self._saving is not None and self._saving.done():
            self.wait()

    def wait(self) -> None:
        """Wait until nothing is being saved any more. Raises SaveError."""
        if self._saving is None:
            return
        saving, self._saving = self._saving, None
        saving.result()
        if self._first:
            print(f"checkpoint step-{self._step:06d} saved", flush=True)

    def _share_of(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return share_of(tensors, *self._disk.share) if self._disk.share else {}

    def _write(self, record: Record, share: Mapping[str, Tensor], copies: Mapping[str, Tensor]) -> None:
        try:
            dcp.save(
                dict(share),
                storage_writer=Writer(self._folder, record),
                planner=Planner(copies),
                process_group=self._group,
            )
        except CheckpointException as error:
            if self._first:
                self._folder.discard(record.step)
            # Every rank has all failures before it: by the lowest, all of them tell the same one.
            rank, (cause, _) = min(error.failures.items())
            raise SaveError(
                f"the checkpoint of step {record.step} is not saved: rank {rank}: {cause}"
            ) from cause
