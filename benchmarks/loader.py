"""GB/s of micro-batches that are read ahead, beside a plain copy, and beside a memory-mapped read."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import torch

from benchmarks.figures import in_turns, show
from trainer import data
from trainer.config import DataConfig, Keep, LoaderConfig
from trainer.data import Task, advection
from trainer.loading import make_loader_of
from trainer.sampling.windows import Order
from trainer.session import space_of

ROUNDS = 15
STEPS = 20
# Windows of 128 KiB: 4 frames of 8192 points.
BATCH, UNROLL = 64, 3
DATA = DataConfig(betas=(1.0,), train=128, test=1, points=8192, frames=21)
CPU = torch.device("cpu")

Take = Callable[[int], int]
"""Takes the micro-batch of a step; how many bytes it has."""


def run() -> None:
    """Prints two lines for trajectories in memory and one for those on disk."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        advection.generate(DATA, folder)
        host, disk = _task("host", folder), _task("disk", folder)
        _compare("loader, from host", host, _order(host), _plain_copy(), "a plain copy (at least 0.6)")
        # That read shifts nothing.
        unshifted = _order(host, shifted=False)
        mapped = _mapped_read(folder, unshifted)
        _compare("  the same, unshifted", host, unshifted, mapped, "a memory-mapped read (at least 0.7)")
        _compare("loader, from disk", disk, _order(disk), _plain_copy(), "a plain copy")


def _compare(name: str, task: Task, order: Order, theirs: Take, what: str) -> None:
    loader = make_loader_of(task, order, LoaderConfig(), (ROUNDS + 1) * STEPS, CPU)
    steps = itertools.count()
    pair = in_turns(
        lambda: _gb_per_s(lambda _: loader.read(next(steps), 0).fields.nbytes),
        lambda: _gb_per_s(theirs),
        ROUNDS,
    )
    loader.close()
    show(name, pair, "GB/s", f"{pair.ratio:.2f} of {what}")


def _task(keep: Keep, folder: Path) -> Task:
    task = data.make(replace(DATA, keep=keep), folder)
    task.place(CPU)
    return task


def _order(task: Task, *, shifted: bool = True) -> Order:
    space = space_of(task.train, UNROLL)
    if not shifted:
        space = replace(space, symmetry="none")
    return Order(seed=0, batch=BATCH, noise=0.0, space=space, rank=0, world_size=1, accumulation=1)


def _plain_copy() -> Take:
    source = torch.rand(STEPS * BATCH, UNROLL + 1, DATA.points)
    return lambda step: source[step * BATCH : (step + 1) * BATCH].clone().nbytes


def _mapped_read(folder: Path, order: Order) -> Take:
    """The windows of the loader's first steps, each cut out of the mapped file and put into a batch."""
    path = advection.path_of(folder, 1.0)
    with h5py.File(path) as file:
        tensor = file["tensor"]
        mapped = np.memmap(path, tensor.dtype, "r", tensor.id.get_offset(), tensor.shape)
    picks = [order.micro_batch_of(step, 0) for step in range(STEPS)]

    def take(step: int) -> int:
        chosen = zip(picks[step].trajectory.tolist(), picks[step].frames[:, 0].tolist(), strict=True)
        windows = [mapped[trajectory, first : first + UNROLL + 1] for trajectory, first in chosen]
        return np.stack(windows).nbytes

    return take


def _gb_per_s(take: Take) -> float:
    began = time.perf_counter()
    taken = sum(take(step) for step in range(STEPS))
    return taken / (time.perf_counter() - began) / 1e9
