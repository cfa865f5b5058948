"""Writing: this rank's share of a checkpoint, copied to host memory, then written and summed by file.

Whether it became a checkpoint is agreed within `torch.distributed.checkpoint.save`: rank 0 gathers what every
rank wrote, or the error it met; when all have written, `CheckpointWriter.finish` commits; then all are told.
A rank that dies breaks the connection, which is an error too. So no rank waits for one that failed.
"""

from __future__ import annotations

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

from vastrun.contract.checkpoint_folder import CheckpointFolder, checksum_file
from vastrun.contract.outcome import FileChecksum
from vastrun.contract.records import write_json
from vastrun.trainer.checkpoints.contents import METADATA, STATE, TrainerState


@dataclass(frozen=True, kw_only=True)
class Written:
    """What one rank wrote."""

    results: list[WriteResult]
    files: list[FileChecksum]


class CheckpointWriter(FileSystemWriter):
    """Writes one checkpoint as a part of `folder`; on rank 0, commits it when all ranks have written.

    Unless `commits`, rank 0 has yet to bring the files of others, which `files_of` lists, and then to commit.
    """

    def __init__(self, folder: CheckpointFolder, state: TrainerState, *, commits: bool = True) -> None:
        # What is written lies in host memory: without the 0 each rank's thread would open the first GPU.
        super().__init__(folder.part(state.step), per_thread_copy_ahead=0)
        self.fs = self._files = _SummedFiles()
        self._folder = folder
        self._state = state
        self._commits = commits
        self.files_of: dict[int, list[FileChecksum]] = {}
        """What each rank wrote, on rank 0 once all have."""

    def storage_meta(self) -> None:
        """Return nothing that differs between two checkpoints of one state, as a path and a random id do."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[Written]:
        if plan.items:
            Path(self.path).mkdir(parents=True, exist_ok=True)
        try:
            results = super().write_data(plan, planner).wait() if plan.items else []
        except RuntimeError as error:
            raise _root_of(error) from error
        done: Future[Written] = Future()
        done.set_result(Written(results=results, files=list(self._files.sums)))
        return done

    def finish(self, metadata: Metadata, results: list[Written]) -> None:
        super().finish(metadata, [written.results for written in results])
        part = Path(self.path)
        write_json(part / STATE, vars(self._state))
        self.files_of = {rank: written.files for rank, written in enumerate(results)}
        if self._commits:
            self._commit()

    def commit(self) -> str:
        """Commit what is on this disk by now; return what went wrong, empty: nothing."""
        try:
            self._commit()
        except OSError as error:
            self._folder.discard(self._state.step)
            return str(error)
        return ""

    def _commit(self) -> None:
        files = [file for files in self.files_of.values() for file in files]
        files += [checksum_file(Path(self.path) / name) for name in (METADATA, STATE)]
        self._folder.commit(self._state.step, self._state.score, files)


class Planner(DefaultSavePlanner):
    """Plans by the tensors that are trained, and writes the copies of them.

    What is planned by one of a `name` is remembered for the next: while the ranks hold the same tensors, they
    send each other no list of them.
    """

    def __init__(self, copies: Mapping[str, Tensor], name: str) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False, enable_plan_caching=True)
        self._cached_plans_key = name
        self._copies = copies

    def lookup_object(self, index: MetadataIndex) -> Tensor:
        return self._copies[index.fqn]


class Staging:
    """Host memory for this rank's share, kept from save to save: to get it anew costs more than to copy."""

    def __init__(self) -> None:
        self._copies: dict[str, Tensor] = {}

    def make_room(self, tensors: Mapping[str, Tensor]) -> None:
        """Get the memory for copies of these, written to once: the kernel gives no page before."""
        for name, tensor in tensors.items():
            if name not in self._copies:
                copy = torch.empty_like(_local(tensor), device="cpu", pin_memory=tensor.is_cuda)
                self._copies[name] = copy.zero_()

    @torch.no_grad()
    def copy(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copy what training goes on to change. On a GPU it goes on only when the copies are whole."""
        self.make_room(tensors)
        local = {name: _local(tensor) for name, tensor in tensors.items()}
        copies = {name: self._copies[name] for name in local}
        if copies:
            torch._foreach_copy_(list(copies.values()), list(local.values()), non_blocking=True)
        if any(tensor.is_cuda for tensor in local.values()):
            torch.cuda.current_stream().synchronize()
        return copies


ELSEWHERE = (-1, 1)
"""The place of a rank that writes nothing but its part of what is sharded: see `share_of`."""


def share_of(tensors: Mapping[str, Tensor], place: int, writers: int) -> dict[str, Tensor]:
    """Choose what a rank writes: its part of what is sharded, and some of what every rank holds, by size."""
    loads = [0] * writers
    mine = {name: tensor for name, tensor in tensors.items() if isinstance(tensor, DTensor)}
    whole = [(name, tensor) for name, tensor in tensors.items() if name not in mine]
    for name, tensor in sorted(whole, key=lambda item: (-item[1].nbytes, item[0])):
        least = loads.index(min(loads))
        loads[least] += tensor.nbytes
        if least == place:
            mine[name] = tensor
    return mine


class _SummedFiles(FileSystem):
    """Files that are summed while they are written."""

    def __init__(self) -> None:
        self.sums: list[FileChecksum] = []

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], _mode: str) -> Iterator[io.IOBase]:
        with _SummedFile(Path(path)) as file:
            yield file
        self.sums.append(FileChecksum(path=Path(path).name, size=file.size, sha256=file.digest.hexdigest()))


class _SummedFile(io.BufferedWriter):
    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path, "wb"))
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, data: Any) -> int:
        self.digest.update(data)
        self.size += memoryview(data).nbytes
        return super().write(data)


def _root_of(error: BaseException) -> BaseException:
    """Return what torch's writer met, such as a full disk: only this can be told to another rank."""
    while error.__context__ is not None:
        error = error.__context__
    return error


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
