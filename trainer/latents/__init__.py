"""Latents: caches the tokens of a frozen encoder for the training frames in files.

Each rank writes its share of the missing files; a file gets its final name when it is complete, so that a
start continues where an earlier one was killed. The folder's name is a hash of everything that the tokens
depend on: tokens of another codec, scale or data set are never read.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from vastrun.contract import layout
from vastrun.trainer.data import Source, Task
from vastrun.trainer.data.trajectories import Trajectories, Windows, to_device
from vastrun.trainer.engine.session import Session
from vastrun.trainer.heartbeat import Heartbeat
from vastrun.trainer.latents.files import LatentFiles
from vastrun.trainer.latents.writer import LatentWriter, check_disk_space
from vastrun.trainer.loading import make_loader
from vastrun.trainer.sampling.windows import BatchIndices

_MB = 1e6


def with_latents(session: Session, heart: Heartbeat) -> Session:
    """Return the session with cached tokens of the first frames, if the job asks for them.

    Raises ConfigError, on all ranks, when the disk has too little space for them.
    """
    if session.config.latents == "off":
        return session
    folder, ranks = session.ranks.rank.box / layout.LATENTS, session.ranks
    writers = [LatentWriter.of(session, number, folder) for number in range(len(session.tasks))]
    missing = sum(writer.files.missing_bytes() for writer in writers)
    check_disk_space(ranks, folder, missing)
    for writer in writers:
        writer.run(ranks, lambda: heart.beat(session.start, "data"))
    if ranks.rank.is_first:
        total = sum(writer.files.bytes for writer in writers)
        new = f"{missing / _MB:,.1f} MB of it new"
        print(f"tokens: {total / _MB:,.1f} MB in {layout.LATENTS}, {new}", flush=True)
    tasks = tuple(CachedTask(task, writer.files) for task, writer in zip(session.tasks, writers, strict=True))
    # The old loader's workers hold the tasks without tokens.
    session.loader.close()
    loader = make_loader(tasks, session.task_schedule, session.config, ranks.device)
    return replace(session, tasks=tasks, loader=loader)


class CachedTask:
    """Task whose windows include the cached tokens of their first frames."""

    def __init__(self, task: Task, files: LatentFiles) -> None:
        self._task = task
        self._files = files

    @property
    def train(self) -> Source:
        return self._task.train

    @property
    def test(self) -> Trajectories:
        return self._task.test

    @property
    def unseen(self) -> Trajectories | None:
        """Test samples at parameters that are not trained; a task in a user's code may be without any."""
        return getattr(self._task, "unseen", None)

    def place(self, device: torch.device) -> None:
        """Move the trajectories; the tokens stay in their files."""
        self._task.place(device)

    def batch(self, step: int, indices: BatchIndices) -> Windows:
        """Read the windows and their tokens. Raises DataError."""
        windows = self._task.batch(step, indices)
        return replace(windows, latents=to_device(windows.fields.device, self._files.read(indices)))
