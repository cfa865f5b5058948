"""The loader's micro-batches as one reads them by hand, in the loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import torch
from torch import Tensor

from vastrun.trainer.data import advection
from vastrun.trainer.job.data_config import DataConfig
from vastrun.trainer.sampling.windows import SamplePlan

STEPS = 20
# Windows of 128 KiB: 4 frames of 8192 points.
BATCH, UNROLL = 64, 3
DATA = DataConfig(betas=(1.0,), train=128, test=1, points=8192, frames=21)

Take = Callable[[int], int]
"""Takes the micro-batch of a step; how many bytes it has."""


def plain_copy() -> Take:
    """As many bytes, in one piece."""
    source = torch.rand(STEPS * BATCH, UNROLL + 1, DATA.points)
    return lambda step: source[step * BATCH : (step + 1) * BATCH].clone().nbytes


def gathered(folder: Path, sample_plan: SamplePlan) -> Take:
    """From a tensor that holds all, window by window, each turned; indexing all at once takes longer."""
    with h5py.File(advection.path_of(folder, 1.0)) as file:
        fields = torch.from_numpy(file["tensor"][: DATA.train])
    return _turned(sample_plan, lambda trajectory, frames: fields[trajectory, frames])


def read(folder: Path, sample_plan: SamplePlan) -> Take:
    """The same from the file."""
    tensor = h5py.File(advection.path_of(folder, 1.0))["tensor"]
    return _turned(sample_plan, lambda trajectory, frames: torch.from_numpy(tensor[trajectory, frames]))


def mapped(folder: Path, sample_plan: SamplePlan) -> Take:
    """Each window cut out of the mapped file and put into a batch, not turned."""
    path = advection.path_of(folder, 1.0)
    with h5py.File(path) as file:
        tensor = file["tensor"]
        fields = np.memmap(path, tensor.dtype, "r", tensor.id.get_offset(), tensor.shape)
    steps = [list(_windows(sample_plan, step)) for step in range(STEPS)]
    return lambda step: np.stack([fields[trajectory, frames] for trajectory, frames, _ in steps[step]]).nbytes


def _turned(sample_plan: SamplePlan, window: Callable[[int, slice], Tensor]) -> Take:
    steps = [list(_windows(sample_plan, step)) for step in range(STEPS)]

    def take(step: int) -> int:
        turned = [window(trajectory, frames).roll(shift, -1) for trajectory, frames, shift in steps[step]]
        return torch.stack(turned).nbytes

    return take


def _windows(sample_plan: SamplePlan, step: int) -> zip[tuple[int, slice, int]]:
    """The trajectory, frames and shift of each."""
    indices = sample_plan.micro_batch_of(step, 0)
    frames = [slice(first, first + UNROLL + 1) for first in indices.frames[:, 0].tolist()]
    return zip(indices.trajectory.tolist(), frames, indices.image.tolist(), strict=True)
