"""Saving: the training goes on while a thread of each rank writes the rank's share.

Files go to and from ranks whose disk is not rank 0's. Nothing of that raises on one rank alone, but for a
lost connection, which every rank meets: a disk that fails is told to all at the end. So no rank waits for one
that gave up.
"""

from __future__ import annotations

import hashlib
import itertools
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as torch_dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import _save_state_dict

from vastrun.contract.checkpoint_folder import CheckpointFolder, checksum_file
from vastrun.contract.errors import ConfigError, SaveError
from vastrun.contract.outcome import FileChecksum
from vastrun.trainer.checkpoints.contents import TrainerState
from vastrun.trainer.checkpoints.disk import Disk, everywhere, find_disk
from vastrun.trainer.checkpoints.reading import FoundCheckpoint, load_tensors, newest_intact
from vastrun.trainer.checkpoints.writing import ELSEWHERE, CheckpointWriter, Planner, Staging, share_of
from vastrun.trainer.distributed.group import Ranks

_CHUNK = 16 << 20

# A disk may be slow, and nobody waits for it; a peer that died is noticed at once, by its connection.
_SLOWEST_WRITE = timedelta(hours=1)

_NUMBERS = itertools.count()


class Checkpointer:
    """The checkpoints of one run. All ranks call each method at the same place.

    They lie on rank 0's disk, whole. Where ranks hold parts (`sharded`) and see another disk, what they write
    is brought there, and what they need from there.
    """

    def __init__(self, folder: CheckpointFolder, ranks: Ranks, *, sharded: bool) -> None:
        self._folder = folder
        self._disk = find_disk(folder.path, ranks)
        self._first = ranks.rank.is_first
        self._carries = sharded and not self._disk.is_seen_by_all
        # Of the thread alone: two threads on one group would take each other's messages.
        self._group = None if ranks.are_one else torch_dist.new_group(backend="gloo", timeout=_SLOWEST_WRITE)
        self._name = f"checkpointer {next(_NUMBERS)}"
        """Of its plans, among those that torch remembers."""
        self._staging = Staging()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._room: Future[None] | None = None
        self._saving: Future[None] | None = None
        self._step: int | None = None
        self._has_files = self._first or ranks.rank.rank in self._disk.carriers
        """It cleans up on the disk of its machine."""
        if self._has_files:
            folder.remove_parts()

    @property
    def step(self) -> int | None:
        """Of the newest that was saved, or is being saved; None: there is none of this run."""
        return self._step

    def newest(self, *, else_of: Path) -> FoundCheckpoint | None:
        """Find the newest intact checkpoint of this run, else of another folder; None: there is none.

        Raises ConfigError when there are some, and none is intact.
        """
        return newest_intact((self._folder.path, else_of), self._disk)

    def load(self, found: FoundCheckpoint, tensors: Mapping[str, Tensor]) -> None:
        """Load a checkpoint as `load_tensors` does; it is not saved again."""
        if self._carries:
            self._load_carried(found.path, tensors)
        else:
            load_tensors(found.path, tensors, self._disk)
        if found.path.parent == self._folder.path:
            self._step = found.state.step

    def prepare(self, tensors: Mapping[str, Tensor]) -> None:
        """Get the memory for copies of these meanwhile, so that the first save is as short as the others."""
        self._room = self._thread.submit(self._staging.make_room, self._share_of(tensors))

    def save(self, state: TrainerState, tensors: Mapping[str, Tensor], *, durable: bool) -> None:
        """Copy the state and begin to write it; when `durable`, return once it is on the disk.

        Waits for the save before, so that none is left out. Raises SaveError: on all ranks, when one of them
        could not write.
        """
        self.wait()
        if state.step != self._step:
            self._step = state.step
            share = self._share_of(tensors)
            # Room was asked for as the training began: only a very early save still has to wait for it.
            if self._room is not None:
                self._room.result()
            copies = self._staging.copy(share)
            self._saving = self._thread.submit(self._write, state, share, copies)
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
        if self._disk.share is None and not self._carries:
            return {}
        return share_of(tensors, *(self._disk.share or ELSEWHERE))

    def _load_carried(self, checkpoint: Path, tensors: Mapping[str, Tensor]) -> None:
        """Load as `load_tensors`, each rank from its own disk: the others have a copy for so long."""
        copy = self._folder.path / f".{checkpoint.name}.fetched.part"
        if fault := spread(checkpoint, copy, self._disk, self._group):
            text = f"{checkpoint.name} cannot be brought to all machines: {fault}"
            raise ConfigError(text, reported_elsewhere=not self._first)
        load_tensors(checkpoint if self._disk.share else copy, tensors, everywhere(self._disk))
        self._disk.ranks.wait_for_all()
        if self._has_files and not self._first:
            shutil.rmtree(copy, ignore_errors=True)

    def _write(self, state: TrainerState, share: Mapping[str, Tensor], copies: Mapping[str, Tensor]) -> None:
        writer = CheckpointWriter(self._folder, state, commits=not self._carries)
        try:
            # Not `dcp.save`: it would write a record for the log about each tensor, which nobody reads.
            _save_state_dict(
                dict(share),
                writer,
                process_group=self._group,
                no_dist=self._group is None,
                planner=Planner(copies, self._name),
            )
        except CheckpointException as error:
            if self._has_files:
                self._folder.discard(state.step)
            # Every rank has all failures before it: by the lowest, all of them tell the same one.
            rank, (cause, _) = min(error.failures.items())
            raise SaveError(
                f"the checkpoint of step {state.step} is not saved: rank {rank}: {cause}"
            ) from cause
        if self._carries:
            self._carry(writer, state)

    def _carry(self, writer: CheckpointWriter, state: TrainerState) -> None:
        """Bring what was written on other machines to rank 0, which commits it. Raises SaveError."""
        fault = gather(self._folder.part(state.step), writer.files_of, self._disk, self._group)
        if self._first and not fault:
            fault = writer.commit()
        elif self._has_files:
            self._folder.discard(state.step)
        if fault := str(broadcast_object(fault, self._group)):
            raise SaveError(f"the checkpoint of step {state.step} is not saved: {fault}")


def gather(
    folder: Path,
    files: Mapping[int, Sequence[FileChecksum]] | None,
    disk: Disk,
    group: torch_dist.ProcessGroup,
) -> str:
    """Bring the files of the ranks on other disks into `folder` on rank 0, and remove them there.

    `files`: what each rank wrote into its own `folder`, as rank 0 knows it. Returns what went wrong, on all
    ranks; empty: nothing. Checksums hold then.
    """
    files, rank, fault = broadcast_object(files, group), disk.ranks.rank.rank, ""
    for sender in (one for one in range(disk.ranks.rank.world_size) if one not in disk.seen_by):
        for file in files[sender]:
            if rank == sender:
                _send(folder / file.path, file, [0], group)
                (folder / file.path).unlink(missing_ok=True)
            elif rank == 0:
                fault = _receive(folder / file.path, file, sender, group) or fault
    return str(broadcast_object(fault, group))


def spread(source: Path, target: Path, disk: Disk, group: torch_dist.ProcessGroup) -> str:
    """Bring the files of `source`, on rank 0's disk, to `target` on every other disk.

    Returns what went wrong, on all ranks; empty: nothing.
    """
    rank, carriers, fault = disk.ranks.rank.rank, disk.carriers, ""
    try:
        here = [checksum_file(path) for path in sorted(source.iterdir())] if rank == 0 else []
    except OSError as error:
        here, fault = [], str(error)
    for file in broadcast_object(here, group):
        if rank == 0:
            _send(source / file.path, file, carriers, group)
        elif rank in carriers:
            fault = _receive(target / file.path, file, 0, group) or fault
    return next(filter(None, _gathered(fault, disk, group)), "")


def broadcast_object(value: Any, group: torch_dist.ProcessGroup) -> Any:
    """Return the value of rank 0, on all ranks of the group. It is pickled."""
    values = [value]
    torch_dist.broadcast_object_list(values, group=group, group_src=0)
    return values[0]


def _gathered(value: str, disk: Disk, group: torch_dist.ProcessGroup) -> list[str]:
    values = [""] * disk.ranks.rank.world_size
    torch_dist.all_gather_object(values, value, group=group)
    return values


def _send(path: Path, file: FileChecksum, to: Sequence[int], group: torch_dist.ProcessGroup) -> None:
    """Send as many bytes as were named, whatever became of the file: its checksum tells."""
    for start in range(0, file.size, _CHUNK):
        chunk = bytearray(min(_CHUNK, file.size - start))
        with suppress(OSError), path.open("rb") as content:
            content.seek(start)
            content.readinto(chunk)
        for rank in to:
            torch_dist.send(torch.frombuffer(chunk, dtype=torch.uint8), group=group, group_dst=rank)


def _receive(path: Path, file: FileChecksum, sender: int, group: torch_dist.ProcessGroup) -> str:
    """Receive the file whole, also where it cannot be written. Returns what went wrong."""
    digest, fault = hashlib.sha256(), _written(path, b"", "wb")
    for start in range(0, file.size, _CHUNK):
        tensor = torch.empty(min(_CHUNK, file.size - start), dtype=torch.uint8)
        torch_dist.recv(tensor, group=group, group_src=sender)
        content = tensor.numpy().tobytes()
        digest.update(content)
        fault = fault or _written(path, content, "ab")
    if fault or digest.hexdigest() == file.sha256:
        return fault
    return f"{path.name} did not come from rank {sender} as it was written"


def _written(path: Path, content: bytes, mode: Literal["wb", "ab"]) -> str:
    """Write it; return what went wrong."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open(mode) as file:
            file.write(content)
    except OSError as error:
        return str(error)
    return ""
