"""TensorBoard: the same figures as files in run/tensorboard, when the job asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_FLUSH_S = 10


class Board:
    """Its package is optional: without it this is said once."""

    def __init__(self, folder: Path, step: int) -> None:
        """What a former start wrote beyond `step` is not shown."""
        self._writer = None
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            print("TensorBoard is off: the package tensorboard is not installed", flush=True)
            return
        self._writer = SummaryWriter(str(folder), purge_step=step + 1, flush_secs=_FLUSH_S)

    def add(self, step: int, figures: Mapping[str, float]) -> None:
        if self._writer:
            for name, value in figures.items():
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        if self._writer:
            self._writer.close()
