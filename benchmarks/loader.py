"""GB/s of micro-batches that are read ahead, beside a plain copy of as many bytes."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from benchmarks.figures import in_turns, show
from trainer.config import DataConfig, LoaderConfig
from trainer.data import advection
from trainer.loading import Loader, make_loader_of
from trainer.sampling.windows import Order
from trainer.session import space_of

ROUNDS = 15
STEPS = 20
# Windows of 128 KiB: 4 frames of 8192 points.
BATCH, UNROLL = 64, 3
DATA = DataConfig(betas=(0.4, 1.0), train=64, test=1, points=8192, frames=21)
CPU = torch.device("cpu")


def run() -> None:
    """Prints a line for trajectories in memory and one for those on disk."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        advection.generate(DATA, Path(folder))
        for keep, goal in (("host", " (at least 0.6)"), ("disk", "")):
            _compare(keep, goal, Path(folder))


def _compare(keep: Literal["host", "disk"], goal: str, folder: Path) -> None:
    loader = _open(keep, folder)
    steps = itertools.count()
    source = torch.rand(STEPS * BATCH, UNROLL + 1, DATA.points)
    pair = in_turns(
        lambda: _gb_per_s(lambda _: loader.read(next(steps), 0).fields),
        lambda: _gb_per_s(lambda step: source[step * BATCH : (step + 1) * BATCH].clone()),
        ROUNDS,
    )
    loader.close()
    show(f"loader, from {keep}", pair, "GB/s", f"{pair.ratio:.2f} of a plain copy{goal}")


def _open(keep: Literal["host", "disk"], folder: Path) -> Loader:
    data = replace(DATA, keep=keep)
    task = advection.make(data, folder)
    task.place(CPU)
    space = space_of(task.train, UNROLL)
    order = Order(seed=0, batch=BATCH, noise=0.0, space=space, rank=0, world_size=1, accumulation=1)
    return make_loader_of(task, order, LoaderConfig(), (ROUNDS + 1) * STEPS, CPU)


def _gb_per_s(take: Callable[[int], Tensor]) -> float:
    began = time.perf_counter()
    taken = sum(take(step).nbytes for step in range(STEPS))
    return taken / (time.perf_counter() - began) / 1e9
