"""Checkpointer: a thread of each rank writes its share while the training continues.

Files are copied to and from ranks on other disks than rank 0's. None of that raises on a single rank, except
a lost connection, which every rank notices: a failed disk is reported to all at the end. So no rank waits for
one that has failed.
"""

import hashlib
import itertools
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Literal

import torch
import torch.distributed as torch_dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import _save_state_dict

from vastrun.contract.checkpoint_folder import checksum_file
from vastrun.contract.outcome import FileChecksum
from vastrun.trainer.checkpoints.contents import TrainerState
from vastrun.trainer.checkpoints.disk import Disk, find_disk
from vastrun.trainer.checkpoints.reader import FoundCheckpoint, load_tensors, newest_intact
from vastrun.trainer.checkpoints.scored_folder import ScoredFolder
from vastrun.trainer.checkpoints.writer import SHARDS_ONLY, CheckpointWriter, Planner, Staging, share_of
from vastrun.trainer.distributed.group import Ranks, broadcast_object
from vastrun.trainer.errors import ConfigError, SaveError

_CHUNK = 16 << 20

# A disk may be slow, and no rank waits for it; a dead peer is noticed at once by its connection.
_WRITE_TIMEOUT = timedelta(hours=1)

_NUMBERS = itertools.count()


class Checkpointer:
    """The checkpoints of one run. All ranks call each method at the same place.

    Complete checkpoints are on rank 0's disk. Files of ranks with shards (`sharded`) on another disk are
    copied to and from it.
    """

    def __init__(self, folder: ScoredFolder, ranks: Ranks, *, sharded: bool) -> None:
        self._folder = folder
        self._disk = find_disk(folder.path, ranks)
        self._first = ranks.rank.is_first
        self._copies_files = sharded and not self._disk.is_shared_by_all
        # For the thread only: two threads on one group would receive each other's messages.
        self._group = (
            None if ranks.is_single else torch_dist.new_group(backend="gloo", timeout=_WRITE_TIMEOUT)
        )
        self._name = f"checkpointer {next(_NUMBERS)}"
        """Key of its plans in torch's cache."""
        self._staging = Staging()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._prepared: Future[None] | None = None
        self._saving: Future[None] | None = None
        self._step: int | None = None
        self._has_files = self._first or ranks.rank.rank in self._disk.first_ranks
        """True for a rank that cleans up on its disk."""
        if self._has_files:
            folder.remove_parts()

    @property
    def step(self) -> int | None:
        """Step of the newest checkpoint that was saved or is being saved; None: none in this run."""
        return self._step

    def newest(self, *, else_of: Path) -> FoundCheckpoint | None:
        """Find the newest intact checkpoint of this run, else of another folder; None: there is none.

        Raises ConfigError when there are some and none is intact.
        """
        return newest_intact((self._folder.path, else_of), self._disk)

    def load(self, found: FoundCheckpoint, tensors: Mapping[str, Tensor]) -> None:
        """Load a checkpoint with `load_tensors`; it is not saved again."""
        if self._copies_files:
            # Each rank loads from its disk: other disks get a temporary copy.
            copy = self._folder.path / f".{found.path.name}.fetched.part"
            if fault := copy_to_disks(found.path, copy, self._disk, self._group):
                text = f"{found.path.name} cannot be copied to all machines: {fault}"
                raise ConfigError(text, reported_elsewhere=not self._first)
            # As if all ranks shared it: each has the files on its disk.
            shared = replace(self._disk, shared_by=tuple(range(self._disk.ranks.rank.world_size)))
            load_tensors(found.path if self._disk.share else copy, tensors, shared)
            self._disk.ranks.wait_for_all()
            if self._has_files and not self._first:
                shutil.rmtree(copy, ignore_errors=True)
        else:
            load_tensors(found.path, tensors, self._disk)
        if found.path.parent == self._folder.path:
            self._step = found.state.step

    def prepare(self, tensors: Mapping[str, Tensor]) -> None:
        """Allocate the memory for copies of the tensors in the background, for a short first save."""
        self._prepared = self._thread.submit(self._staging.allocate, self._share_of(tensors))

    def save(self, state: TrainerState, tensors: Mapping[str, Tensor], *, durable: bool) -> None:
        """Copy the state and start writing it; when `durable`, return once it is on the disk.

        Waits for the previous save, so that none is skipped. Raises SaveError on all ranks when one of them
        could not write.
        """
        self.wait()
        if state.step != self._step:
            self._step = state.step
            share = self._share_of(tensors)
            # Memory was requested at the start of the training: only a very early save has to wait for it.
            if self._prepared is not None:
                self._prepared.result()
            copies = self._staging.copy(share)
            self._saving = self._thread.submit(self._write, state, share, copies)
        if durable:
            self.wait()

    def poll(self) -> None:
        """Report a save that has finished, without waiting. Raises SaveError."""
        if self._saving is not None and self._saving.done():
            self.wait()

    def wait(self) -> None:
        """Wait until the save in progress has finished. Raises SaveError."""
        if self._saving is None:
            return
        saving, self._saving = self._saving, None
        saving.result()
        if self._first:
            print(f"checkpoint step-{self._step:06d} saved", flush=True)

    def _share_of(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if self._disk.share is None and not self._copies_files:
            return {}
        return share_of(tensors, *(self._disk.share or SHARDS_ONLY))

    def _write(self, state: TrainerState, share: Mapping[str, Tensor], copies: Mapping[str, Tensor]) -> None:
        writer = CheckpointWriter(self._folder, state, commits=not self._copies_files)
        try:
            # Not `dcp.save`: it would log a record about each tensor.
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
            # Every rank has all failures: by choosing the lowest rank, all report the same one.
            rank, (cause, _) = min(error.failures.items())
            raise SaveError(
                f"the checkpoint of step {state.step} is not saved: rank {rank}: {cause}"
            ) from cause
        if self._copies_files:
            # Rank 0 gets the files of other machines, and commits the checkpoint.
            fault = move_to_first(self._folder.part(state.step), writer.files_of, self._disk, self._group)
            if self._first and not fault:
                fault = writer.commit()
            elif self._has_files:
                self._folder.discard(state.step)
            if fault := str(broadcast_object(fault, self._group)):
                raise SaveError(f"the checkpoint of step {state.step} is not saved: {fault}")


def move_to_first(
    folder: Path,
    files: Mapping[int, Sequence[FileChecksum]] | None,
    disk: Disk,
    group: torch_dist.ProcessGroup,
) -> str:
    """Move the files of the ranks on other disks into `folder` on rank 0.

    `files`: the files that each rank wrote into its `folder`, on rank 0. Returns the fault, on all ranks;
    empty: all files were copied and their checksums match.
    """
    files, rank, fault = broadcast_object(files, group), disk.ranks.rank.rank, ""
    for sender in (one for one in range(disk.ranks.rank.world_size) if one not in disk.shared_by):
        for file in files[sender]:
            if rank == sender:
                _send(folder / file.path, file, [0], group)
                (folder / file.path).unlink(missing_ok=True)
            elif rank == 0:
                fault = _receive(folder / file.path, file, sender, group) or fault
    return str(broadcast_object(fault, group))


def copy_to_disks(source: Path, target: Path, disk: Disk, group: torch_dist.ProcessGroup) -> str:
    """Copy the files of `source` on rank 0's disk to `target` on every other disk.

    Returns the fault, on all ranks; empty: there was none.
    """
    rank, first_ranks, fault = disk.ranks.rank.rank, disk.first_ranks, ""
    try:
        here = [checksum_file(path) for path in sorted(source.iterdir())] if rank == 0 else []
    except OSError as error:
        here, fault = [], str(error)
    for file in broadcast_object(here, group):
        if rank == 0:
            _send(source / file.path, file, first_ranks, group)
        elif rank in first_ranks:
            fault = _receive(target / file.path, file, 0, group) or fault
    values = [""] * disk.ranks.rank.world_size
    torch_dist.all_gather_object(values, fault, group=group)
    return next(filter(None, values), "")


def _send(path: Path, file: FileChecksum, to: Sequence[int], group: torch_dist.ProcessGroup) -> None:
    """Send the listed number of bytes, even if the file has changed: the checksum detects that."""
    for start in range(0, file.size, _CHUNK):
        chunk = bytearray(min(_CHUNK, file.size - start))
        with suppress(OSError), path.open("rb") as content:
            content.seek(start)
            content.readinto(chunk)
        for rank in to:
            torch_dist.send(torch.frombuffer(chunk, dtype=torch.uint8), group=group, group_dst=rank)


def _receive(path: Path, file: FileChecksum, sender: int, group: torch_dist.ProcessGroup) -> str:
    """Receive the whole file, even if it cannot be written. Returns the fault; empty: there was none."""
    digest, fault = hashlib.sha256(), _append(path, b"", "wb")
    for start in range(0, file.size, _CHUNK):
        tensor = torch.empty(min(_CHUNK, file.size - start), dtype=torch.uint8)
        torch_dist.recv(tensor, group=group, group_src=sender)
        content = tensor.numpy().tobytes()
        digest.update(content)
        fault = fault or _append(path, content, "ab")
    if fault or digest.hexdigest() == file.sha256:
        return fault
    return f"{path.name} from rank {sender} does not match its checksum"


def _append(path: Path, content: bytes, mode: Literal["wb", "ab"]) -> str:
    """Write the content; return the fault, empty if there was none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open(mode) as file:
            file.write(content)
    except OSError as error:
        return str(error)
    return ""
