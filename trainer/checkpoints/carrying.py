"""Carrying: files of a checkpoint from and to ranks whose disk is not rank 0's. All call these together.

Nothing here raises on one rank alone, but for a lost connection, which every rank meets: a disk that fails
is told to all at the end. So no rank waits for one that gave up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as torch_dist

from trainer.checkpoints.disk import Disk
from trainer.contract.checkpoint_folder import sum_of
from trainer.contract.outcome import FileSum

_CHUNK = 16 << 20


def gather(
    folder: Path, files: Mapping[int, Sequence[FileSum]] | None, disk: Disk, group: torch_dist.ProcessGroup
) -> str:
    """Bring the files of the ranks on other disks into `folder` on rank 0, and remove them there.

    `files`: what each rank wrote into its own `folder`, as rank 0 knows it. Returns what went wrong, on all
    ranks; empty: nothing. Checksums hold then.
    """
    files, rank, fault = told_by_first(files, group), disk.ranks.rank.rank, ""
    for sender in (one for one in range(disk.ranks.rank.world_size) if one not in disk.seen_by):
        for file in files[sender]:
            if rank == sender:
                _send(folder / file.path, file, [0], group)
                (folder / file.path).unlink(missing_ok=True)
            elif rank == 0:
                fault = _receive(folder / file.path, file, sender, group) or fault
    return str(told_by_first(fault, group))


def spread(source: Path, target: Path, disk: Disk, group: torch_dist.ProcessGroup) -> str:
    """Bring the files of `source`, on rank 0's disk, to `target` on every other disk.

    Returns what went wrong, on all ranks; empty: nothing.
    """
    rank, carriers, fault = disk.ranks.rank.rank, disk.carriers, ""
    try:
        here = [sum_of(path) for path in sorted(source.iterdir())] if rank == 0 else []
    except OSError as error:
        here, fault = [], str(error)
    for file in told_by_first(here, group):
        if rank == 0:
            _send(source / file.path, file, carriers, group)
        elif rank in carriers:
            fault = _receive(target / file.path, file, 0, group) or fault
    return next(filter(None, _gathered(fault, disk, group)), "")


def told_by_first(value: Any, group: torch_dist.ProcessGroup) -> Any:
    """Return the value of rank 0, on all ranks of the group. It is pickled."""
    values = [value]
    torch_dist.broadcast_object_list(values, group=group, group_src=0)
    return values[0]


def _gathered(value: str, disk: Disk, group: torch_dist.ProcessGroup) -> list[str]:
    values = [""] * disk.ranks.rank.world_size
    torch_dist.all_gather_object(values, value, group=group)
    return values


def _send(path: Path, file: FileSum, to: Sequence[int], group: torch_dist.ProcessGroup) -> None:
    """Send as many bytes as were named, whatever became of the file: its checksum tells."""
    for start in range(0, file.size, _CHUNK):
        chunk = bytearray(min(_CHUNK, file.size - start))
        with suppress(OSError), path.open("rb") as content:
            content.seek(start)
            content.readinto(chunk)
        for rank in to:
            torch_dist.send(torch.frombuffer(chunk, dtype=torch.uint8), group=group, group_dst=rank)


def _receive(path: Path, file: FileSum, sender: int, group: torch_dist.ProcessGroup) -> str:
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
