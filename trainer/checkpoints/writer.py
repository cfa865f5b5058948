"""Checkpoint writer: copies this rank's share of a checkpoint to host memory, then writes it with checksums.

The ranks agree on the result within `torch.distributed.checkpoint.save`: rank 0 gathers the files or the
error of every rank; when all have written, `CheckpointWriter.finish` commits; then the result is broadcast. A
rank that dies breaks the connection, which is an error, too. So no rank waits for one that has failed.
"""

import hashlib
import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint import DefaultSavePlanner, FileSystemWriter
from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.tensor import DTensor
from torch.futures import Future

from vastrun.contract.checkpoint_folder import checksum_file
from vastrun.contract.outcome import FileChecksum
from vastrun.contract.records import write_json
from vastrun.trainer.checkpoints.contents import METADATA, STATE, TrainerState
from vastrun.trainer.checkpoints.scored_folder import ScoredFolder
from vastrun.trainer.distributed.group import local


@dataclass(frozen=True, kw_only=True)
class RankFiles:
    """The files that one rank wrote."""

    results: list[WriteResult]
    files: list[FileChecksum]


class CheckpointWriter(FileSystemWriter):
    """Writes one checkpoint as a part of `folder`; on rank 0, commits it when all ranks have written.

    Without `commits`, the caller copies the files of other ranks, which `files_of` lists, and then commits.
    """

    def __init__(self, folder: ScoredFolder, state: TrainerState, *, commits: bool = True) -> None:
        # The copies are in host memory: without the 0 each rank's thread would open the first GPU.
        super().__init__(folder.part(state.step), per_thread_copy_ahead=0)
        self.fs = self._files = _ChecksumFiles()
        self._folder = folder
        self._state = state
        self._commits = commits
        self.files_of: dict[int, list[FileChecksum]] = {}
        """Files of each rank, on rank 0 after all have written."""

    def storage_meta(self) -> None:
        """Return None: torch's path and random id would differ between two checkpoints of one state."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[RankFiles]:
        if plan.items:
            Path(self.path).mkdir(parents=True, exist_ok=True)
        try:
            results = super().write_data(plan, planner).wait() if plan.items else []
        except RuntimeError as error:
            raise _root_cause(error) from error
        done: Future[RankFiles] = Future()
        done.set_result(RankFiles(results=results, files=list(self._files.sums)))
        return done

    def finish(self, metadata: Metadata, results: list[RankFiles]) -> None:
        super().finish(metadata, [written.results for written in results])
        write_json(Path(self.path) / STATE, vars(self._state))
        self.files_of = {rank: written.files for rank, written in enumerate(results)}
        if self._commits:
            self._commit()

    def commit(self) -> str:
        """Commit the files on this disk; return the fault, empty if there was none."""
        try:
            self._commit()
        except OSError as error:
            self._folder.discard(self._state.step)
            return str(error)
        return ""

    def _commit(self) -> None:
        files = [file for files in self.files_of.values() for file in files]
        files += [checksum_file(Path(self.path) / name) for name in (METADATA, STATE)]
        self._folder.commit(self._state.step, files, self._state.score)


class Planner(DefaultSavePlanner):
    """Plans with the trained tensors, and writes their copies.

    Plans are cached by `name`: while the ranks hold the same tensors, they exchange no list of them.
    """

    def __init__(self, copies: Mapping[str, Tensor], name: str) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False, enable_plan_caching=True)
        self._cached_plans_key = name
        self._copies = copies

    def lookup_object(self, index: MetadataIndex) -> Tensor:
        return self._copies[index.fqn]


class Staging:
    """Host memory for this rank's share, reused by each save: allocating it costs more than copying."""

    def __init__(self) -> None:
        self._copies: dict[str, Tensor] = {}

    def allocate(self, tensors: Mapping[str, Tensor]) -> None:
        """Allocate memory for copies of the tensors, and write to it so that the kernel maps its pages."""
        for name, tensor in zip(tensors, local(tensors.values()), strict=True):
            if name not in self._copies:
                copy = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
                self._copies[name] = copy.zero_()

    @torch.no_grad()
    def copy(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copy the tensors before training changes them. On a GPU, wait until the copies are complete."""
        self.allocate(tensors)
        parts, copies = local(tensors.values()), {name: self._copies[name] for name in tensors}
        if copies:
            torch._foreach_copy_(list(copies.values()), parts, non_blocking=True)
        if any(tensor.is_cuda for tensor in parts):
            torch.cuda.current_stream().synchronize()
        return copies


SHARDS_ONLY = (-1, 1)
"""Arguments of `share_of` for a rank that writes only its shards."""


def share_of(tensors: Mapping[str, Tensor], place: int, writers: int) -> dict[str, Tensor]:
    """Return the tensors that a rank writes: its shards, and a part of the replicated tensors, by size."""
    loads = [0] * writers
    mine = {name: tensor for name, tensor in tensors.items() if isinstance(tensor, DTensor)}
    whole = [(name, tensor) for name, tensor in tensors.items() if name not in mine]
    for name, tensor in sorted(whole, key=lambda item: (-item[1].nbytes, item[0])):
        lightest = loads.index(min(loads))
        loads[lightest] += tensor.nbytes
        if lightest == place:
            mine[name] = tensor
    return mine


class _ChecksumFiles(FileSystem):
    """Files whose checksums are computed while they are written."""

    def __init__(self) -> None:
        self.sums: list[FileChecksum] = []

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], _mode: str) -> Iterator[io.IOBase]:
        with _ChecksumFile(Path(path)) as file:
            yield file
        self.sums.append(FileChecksum(path=Path(path).name, size=file.size, sha256=file.digest.hexdigest()))


class _ChecksumFile(io.BufferedWriter):
    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path, "wb"))
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, data: Any) -> int:
        self.digest.update(data)
        self.size += memoryview(data).nbytes
        return super().write(data)


def _root_cause(error: BaseException) -> BaseException:
    """Return the original error of torch's writer (a full disk): only this can be sent to another rank."""
    while error.__context__ is not None:
        error = error.__context__
    return error
