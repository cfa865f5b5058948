"""Checkpoint reader: loads the newest intact checkpoint into the tensors of any strategy and rank count."""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as torch_dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint import DefaultLoadPlanner, FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from vastrun.contract.checkpoint_folder import DamagedError, newest_first, step_of, verify
from vastrun.contract.records import read_json
from vastrun.trainer.checkpoints.contents import EMA, MODEL, OPTIMIZER, STATE, TrainerState
from vastrun.trainer.checkpoints.disk import Disk
from vastrun.trainer.checkpoints.metadata import read_metadata
from vastrun.trainer.errors import ConfigError

_MAX_STATE_BYTES = 16 << 20


@dataclass(frozen=True, kw_only=True)
class FoundCheckpoint:
    """A checkpoint to continue from."""

    path: Path
    state: TrainerState
    faults: tuple[str, ...]
    """A line for each newer checkpoint that is damaged."""


def newest_intact(folders: Iterable[Path], disk: Disk) -> FoundCheckpoint | None:
    """Find the newest intact checkpoint of the first folder with one. The ranks share the reading, and agree.

    None when there is no checkpoint. Raises ConfigError when there are some and none is intact.
    """
    ranks, faults = disk.ranks, list[str]()
    for folder in folders:
        for name in ranks.broadcast_object([path.name for path in newest_first(folder)]):
            path = folder / name
            # Each rank reads a share of the files: a fault of one rank counts for all.
            fault = next(filter(None, ranks.all_gather_objects(_fault_of(path, disk))), None)
            if fault is None:
                state = ranks.broadcast_object(state_of(path) if ranks.rank.is_first else None)
                notes = tuple(f"{text}; trying an older one" for text in faults)
                return FoundCheckpoint(path=path, state=state, faults=notes)
            faults.append(fault)
    if faults:
        text = "no checkpoint is intact: " + "; ".join(faults)
        raise ConfigError(text, reported_elsewhere=not ranks.rank.is_first)
    return None


def found_at(path: Path, disk: Disk) -> FoundCheckpoint:
    """Verify and return the checkpoint at `path`. The ranks share the reading. Raises ConfigError."""
    ranks = disk.ranks
    fault = next(filter(None, ranks.all_gather_objects(_fault_of(path, disk))), None)
    if fault:
        raise ConfigError(fault, reported_elsewhere=not ranks.rank.is_first)
    state = ranks.broadcast_object(state_of(path) if ranks.rank.is_first else None)
    return FoundCheckpoint(path=path, state=state, faults=())


@torch.no_grad()
def load_tensors(checkpoint: Path, tensors: Mapping[str, Tensor], disk: Disk) -> None:
    """Load a checkpoint into `tensors`, in place. Without a saved EMA, it starts from the weights; without a
    saved outer optimiser, its tensors are unchanged.

    Raises ConfigError for a checkpoint of another model or optimiser.
    """
    ranks = disk.ranks
    saved = CheckpointReader(checkpoint).metadata.state_dict_metadata if disk.share else {}
    # Rank 0 decides for all: ranks that disagree here would wait for each other forever.
    saved, fault = ranks.broadcast_object((saved, next(_mismatches(saved, tensors), None)))
    if fault:
        text = f"{checkpoint.name} belongs to another model or optimiser: {fault}"
        raise ConfigError(text, reported_elsewhere=not ranks.rank.is_first)
    selected = {name: tensor for name, tensor in tensors.items() if name in saved}
    if disk.share:
        read_tensors(checkpoint, selected)
    if not disk.is_shared_by_all:
        for tensor in selected.values():
            # NCCL does not transfer CPU memory; the control group uses gloo, which does.
            torch_dist.broadcast(tensor, 0, group=None if tensor.is_cuda else ranks.control)
    for name in (name for name in tensors.keys() - selected if name.startswith(EMA)):
        tensors[name].copy_(tensors[f"{MODEL}{name.removeprefix(EMA)}"])


def read_tensors(checkpoint: Path, tensors: dict[str, Tensor]) -> None:
    """Read `tensors` in place. Each rank reads its own tensors, without communication."""
    planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # about the missing process group
        dcp.load(tensors, storage_reader=CheckpointReader(checkpoint), planner=planner, no_dist=True)


class CheckpointReader(FileSystemReader):
    """Reads only tensors: a pickle is a program, and this one may come from an untrusted machine."""

    def __init__(self, checkpoint: Path) -> None:
        super().__init__(checkpoint)
        self.metadata = read_metadata(checkpoint)

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        return self.metadata


def _mismatches(saved: Mapping[str, TensorStorageMetadata], tensors: Mapping[str, Tensor]) -> Iterator[str]:
    stateful = {name.rpartition(".")[0] for name in saved if name.startswith(OPTIMIZER)}
    for name, tensor in tensors.items():
        # An optimiser has no state for a parameter that no step has used.
        unused = bool(stateful) and name.startswith(OPTIMIZER) and name.rpartition(".")[0] not in stateful
        if name not in saved and not unused and not name.startswith(EMA):
            yield f"the checkpoint has no {name}"
        elif name in saved and saved[name].size != tensor.size():
            yield f"{name} is {tuple(saved[name].size)} there, and {tuple(tensor.size())} in the model"
    yield from (
        f"the model has no {name}" for name in saved if name.startswith(MODEL) and name not in tensors
    )


def _fault_of(checkpoint: Path, disk: Disk) -> str | None:
    """Return the fault of this rank's share of the files, or of files that all need; None if intact."""
    if disk.share is None:
        return None
    place, readers = disk.share
    try:
        verify(checkpoint, share=place, shares=readers)
        CheckpointReader(checkpoint)
        state_of(checkpoint)
    except DamagedError as error:
        return str(error)
    except (OSError, ValueError, TypeError) as error:
        return f"{checkpoint.name} is complete, but not a checkpoint of this trainer: {error}"
    return None


def state_of(checkpoint: Path) -> TrainerState:
    """Read `state.json`. Raises DamagedError, OSError, ValueError."""
    if (checkpoint / STATE).stat().st_size > _MAX_STATE_BYTES:
        raise DamagedError(f"{STATE} in {checkpoint.name} is larger than {_MAX_STATE_BYTES} bytes")
    state: TrainerState = read_json(TrainerState, (checkpoint / STATE).read_text(encoding="utf-8"))
    if state.step != step_of(checkpoint):
        raise DamagedError(f"{checkpoint.name}/{STATE} belongs to step {state.step}")
    return state
