"""A task whose windows bring the tokens of their first frames."""

from __future__ import annotations

from dataclasses import replace

import torch

from trainer.data import Source, Task
from trainer.data.trajectories import Trajectories, Windows, on
from trainer.latents.files import LatentFiles
from trainer.sampling.windows import BatchIndices


class CachedTask:
    """Any task, and its tokens."""

    def __init__(self, task: Task, files: LatentFiles) -> None:
        self._task = task
        self._files = files

    @property
    def train(self) -> Source:
        return self._task.train

    @property
    def test(self) -> Trajectories:
        return self._task.test

    def place(self, device: torch.device) -> None:
        """Move the trajectories; the tokens stay in their files."""
        self._task.place(device)

    def batch(self, step: int, indices: BatchIndices) -> Windows:
        """Read the windows, where the task has them. Raises DataError."""
        windows = self._task.batch(step, indices)
        return replace(windows, latents=on(windows.fields.device, self._files.read(indices)))
