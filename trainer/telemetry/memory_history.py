"""Memory history: write a snapshot of a GPU's memory when it ran out, for https://pytorch.org/memory_viz."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vastrun.contract.profiling import memory_path
from vastrun.trainer.distributed.exit import is_out_of_memory

MAX_ENTRIES = 100_000
"""Maximum recorded allocations and frees, the last ones; each takes some KB of main memory."""
MAX_SNAPSHOT_BYTES = 256 << 20
"""Maximum size of a snapshot; a larger one is deleted."""


class MemoryHistory:
    """Records the allocations of one rank from its first step on, and writes a snapshot when one fails.

    Not by default: each allocation takes some microseconds longer. Only the error that ends the rank has a
    snapshot, not the errors of the memory probe and of `out_of_memory: retry`: no observer is attached.
    """

    def __init__(self, box: Path, rank: int, memory: Any) -> None:
        """`memory`: `torch.cuda.memory`, or None to record nothing."""
        self._path = box / memory_path(rank)
        self._memory = memory

    def begin(self) -> None:
        """Start recording."""
        if self._memory is None:
            return
        try:
            # Frames of C++ would be looked up one by one when the snapshot is written, for minutes.
            self._memory._record_memory_history(max_entries=MAX_ENTRIES, stacks="python")
        except RuntimeError as fault:
            print(f"note: the history of GPU memory cannot be recorded: {fault}", flush=True)
            self._memory = None

    def write_after(self, error: BaseException) -> None:
        """Write the snapshot if the error means that memory ran out."""
        if self._memory is None or not is_out_of_memory(error):
            return
        part = self._path.with_name(f".{self._path.name}.part")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._memory._dump_snapshot(str(part))
            size = part.stat().st_size
            if size > MAX_SNAPSHOT_BYTES:
                raise OSError(f"{size >> 20} MiB are more than {MAX_SNAPSHOT_BYTES >> 20} MiB")
            part.replace(self._path)
        except (MemoryError, OSError, RuntimeError) as fault:
            print(f"note: no snapshot of GPU memory was written: {fault}", flush=True)
        else:
            name = self._path.relative_to(self._path.parents[1])
            print(
                f"snapshot of GPU memory: {name}; open it at https://pytorch.org/memory_viz",
                flush=True,
            )
        finally:
            part.unlink(missing_ok=True)
