"""A training that continues another one, perhaps on another machine, goes on in the same W&B run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.trainer.conftest import together
from tests.trainer.engine import begin, prepare
from trainer import layout
from trainer.dist import Ranks

pytestmark = pytest.mark.torch


def test_the_wandb_run_is_that_of_the_training_that_is_continued(tmp_path: Path) -> None:
    assert together(continue_twice, 1, prepare(tmp_path / "box")) == [["first", "first", "first"]]


def continue_twice(ranks: Ranks, box: Path) -> list[str]:
    """The W&B runs of a training, of one that continues it, and of one that continues that one."""
    job = (box / layout.JOB).read_text()
    runs = []
    for step, run_id in enumerate(("first", "second", "third"), start=1):
        (box / layout.JOB).write_text(job.replace("calm-heron-3f1a", run_id))
        session = begin(ranks, box, {})
        runs.append(session.wandb_id)
        session.save(step, None, durable=True)
        shutil.rmtree(box / layout.RESUME, ignore_errors=True)
        (box / layout.CHECKPOINTS).rename(box / layout.RESUME)
    return runs
