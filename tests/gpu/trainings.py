"""Trainings for checks: sessions of ranks that are `together`, and whole trainings under the supervisor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests import programs
from tests.gpu.check import Place, expect
from tests.waiting import eventually
from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.outcome import Outcome
from vastrun.contract.records import read_as
from vastrun.trainer import data
from vastrun.trainer.distributed.rank import Heartbeat
from vastrun.trainer.job.config import TrainConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vastrun.trainer.distributed.group import Ranks
    from vastrun.trainer.engine.session import Session

STEPS = 20
SMALL: Mapping[str, Any] = {
    "steps": STEPS,
    "batch": 8,
    "unroll": 2,
    "log_every": 1,
    "checkpoint_every": 10,
    "data": {"betas": [1.0], "train": 32, "test": 8, "points": 32, "frames": 9},
    "model": {"name": "latent", "dim": 32, "depth": 2, "heads": 2, "patch": 4},
    "wandb": {"mode": "off"},
    "plots": False,
}
Settings = Mapping[str, Any]
OWN_MODEL = "examples.own_model.transformer:Transformer"
"""A model of the user's code, imported from the checkout."""
_ROOT = str(Path(layout.__file__).parents[2])
_ENDS_WITHIN_S = 200.0


def config_of(settings: Settings) -> TrainConfig:
    """Return the small training with these values replaced."""
    config: TrainConfig = read_as(TrainConfig, {**SMALL, **settings})
    return config


def box_of(folder: Path, place: Place, settings: Settings, *, ranks: int = 1, **job: Any) -> Path:
    """Make a box with a job and its data; keywords replace values of the job."""
    described = {
        "run_id": "calm-heron-3f1a",
        "name": "gpu",
        "ranks": ranks,
        "gpus": place.gpus_of(ranks),
        "stall_s": 60,
        "start_s": 120,
        "train": {**SMALL, **settings},
        **job,
    }
    folder.mkdir(parents=True)
    (folder / layout.JOB).write_text(json.dumps(programs.described(described)))
    for task in config_of(settings).data:
        own = task if ":" not in task.task else replace(task, task="advection")
        list(data.generate(own, folder / layout.DATA))
    return folder


def begin(ranks: Ranks, box: Path, settings: Settings) -> Session:
    """Return a session as the loop gets it, after its newest checkpoint where there is one."""
    from vastrun.trainer.engine.resume import resume_session
    from vastrun.trainer.engine.session_builder import set_up

    here = replace(ranks, rank=replace(ranks.rank, box=box))
    return resume_session(set_up(here, Job.read(box), config_of(settings)))


def heart_of(session: Session) -> Heartbeat:
    """Return a heartbeat of its rank."""
    return Heartbeat(session.ranks.rank.box / layout.HEARTBEATS / f"rank-{session.ranks.rank.rank}")


def learn(session: Session, first: int, last: int) -> tuple[Session, list[float]]:
    """Train the steps from `first` to before `last`; return the session, and the losses."""
    from vastrun.trainer.engine.step import train_step

    heart, losses = heart_of(session), []
    for step in range(first, last):
        session, told = train_step(session, step, heart)
        losses.append(session.ranks.mean_of(*told)[0])
    return session, losses


def curves(ranks: Ranks, box: Path, jobs: Mapping[str, Settings]) -> dict[str, list[float]]:
    """Train one job after the other, from nothing; return their losses."""
    found = {}
    for name, settings in jobs.items():
        session, found[name] = learn(begin(ranks, box, settings), 0, STEPS)
        session.loader.close()
    return found


class Supervised:
    """A job under the real supervisor, in a box that is there."""

    def __init__(self, box: Path, env: Mapping[str, str] | None = None) -> None:
        self.box = box
        environment = {**os.environ, "VASTRUN_BOX": str(box), "PYTHONPATH": _ROOT, **(env or {})}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "vastrun.onstart.supervise"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
        )

    def until(self, activity: str, *, rank: int = 0) -> None:
        """Return when a rank is in this activity."""
        eventually(lambda: self._activity(rank) == activity, within_s=_ENDS_WITHIN_S, what=activity)

    def outcome(self) -> Outcome:
        """Return what the supervisor wrote, after its end. Raises Broken where it wrote none."""
        self.process.wait(_ENDS_WITHIN_S)
        path = self.box / layout.OUTCOME
        expect(path.exists(), f"the supervisor wrote no outcome: {self.log()[-2000:]}")
        return Outcome.from_json(path.read_text(encoding="utf-8"))

    def log(self) -> str:
        """Return what the ranks printed."""
        path = self.box / layout.LOG
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def _activity(self, rank: int) -> str:
        from vastrun.onstart.supervision.progress import beat_of

        beat = beat_of(self.box, rank)
        return beat.activity if beat else ""


@contextmanager
def supervised(box: Path, env: Mapping[str, str] | None = None) -> Iterator[Supervised]:
    """Start a job under its supervisor; nothing of it is left afterwards."""
    running = Supervised(box, env)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()


def expect_reason(run: Supervised, outcome: Outcome, reason: str) -> None:
    """Raise Broken, with the end of the log, where the run ended for another reason."""
    text = f"expected {reason}, got {outcome.reason}: {outcome.detail}\n{run.log()[-3000:]}"
    expect(outcome.reason == reason, text)
