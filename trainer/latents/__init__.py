"""Latents: tokens that a frozen encoder makes of the training frames, made once and read from files.

Each rank makes its share of what is missing; a file has its name when it is whole, so that one start goes on
where another was killed. The folder's name is a key of all that tokens follow from: those of another codec,
scale or data set are never found.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from vastrun.contract import layout
from vastrun.trainer.data import Source, Task
from vastrun.trainer.data.trajectories import Trajectories, Windows, on
from vastrun.trainer.engine.session import Session
from vastrun.trainer.heartbeat import Heartbeat
from vastrun.trainer.latents.files import LatentFiles
from vastrun.trainer.latents.making import Making, check_room
from vastrun.trainer.loading import make_loader
from vastrun.trainer.sampling.windows import BatchIndices

_MB = 1e6


def with_latents(session: Session, heart: Heartbeat) -> Session:
    """Return the same training, which reads its first frames' tokens where the job wants that.

    Raises ConfigError, on all ranks, when the disk has no room for them.
    """
    if session.config.latents == "off":
        return session
    folder, ranks = session.ranks.rank.box / layout.LATENTS, session.ranks
    makings = [Making.of(session, number, folder) for number in range(len(session.tasks))]
    missing = sum(making.files.missing_bytes() for making in makings)
    check_room(ranks, folder, missing)
    for making in makings:
        making.run(ranks, lambda: heart.beat(session.start, "data"))
    if ranks.rank.is_first:
        total = sum(making.files.bytes for making in makings)
        told = f"{total / _MB:,.1f} MB in {layout.LATENTS}, {missing / _MB:,.1f} MB of it new"
        print(f"tokens: {told}", flush=True)
    tasks = tuple(CachedTask(task, making.files) for task, making in zip(session.tasks, makings, strict=True))
    # Its workers hold the tasks without their tokens.
    session.loader.close()
    loader = make_loader(tasks, session.task_schedule, session.config, ranks.device)
    return replace(session, tasks=tasks, loader=loader)


class CachedTask:
    """A task whose windows bring the tokens of their first frames."""

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
