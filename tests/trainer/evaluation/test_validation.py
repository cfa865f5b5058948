"""Validation during a training: it changes nothing but what is known, and which checkpoint is the best."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer import engine
from tests.trainer.conftest import Box, RunningRanks, together
from trainer import data, layout
from trainer.config import DataConfig
from trainer.config_checks import faults_of
from trainer.data import advection
from trainer.dist import Ranks
from trainer.evaluation.validation import Abandoned, Finding, Validation

Start = Callable[[Box, int], RunningRanks]

DATA = {"betas": [0.4, 1.0], "train": 20, "validation": 4, "test": 4, "points": 32, "frames": 6}
SETTINGS: dict[str, Any] = {
    "data": DATA,
    "ema": 0.9,
    "strategy": "fsdp2",
    "evaluate_every": 5,
    "checkpoint_every": 5,
}


def test_what_is_kept_back_is_seen_neither_in_training_nor_in_the_test(tmp_path: Path) -> None:
    config = DataConfig(betas=(0.4, 1.0), train=20, validation=4, test=4, points=32, frames=6)
    advection.generate(config, tmp_path)
    splits, kept_back = data.splits(config, tmp_path), data.validation(config, tmp_path)
    assert kept_back is not None
    assert (len(splits.train), len(kept_back), len(splits.test)) == (32, 8, 8)
    sets = [splits.train.read(range(32)), kept_back.fields.numpy(), splits.test.read(range(8))]
    beginnings = [{tuple(np.round(first.ravel(), 5)) for first in fields[:, 0]} for fields in sets]
    assert [len(each) for each in beginnings] == [16, 4, 4]  # the same at both speeds
    assert len(set.union(*beginnings)) == 24
    nothing = replace(config, validation=0)
    assert data.validation(nothing, tmp_path) is None
    assert len(data.splits(nothing, tmp_path).train) == 40


def test_settings_that_keep_back_nothing_or_all_are_told_by_their_keys() -> None:
    def keys(**settings: Any) -> list[str]:
        return [key for key, _ in faults_of(engine.config(**settings), 1)]

    assert keys(data=DATA, evaluate_every=10) == []
    assert keys(evaluate_every=10) == ["data.validation"]
    assert keys(data=DATA) == ["data.validation"]
    assert "data.validation" in keys(data={**DATA, "validation": 20}, evaluate_every=10)
    assert keys(data=DATA, evaluate_every=4) == ["evaluate_every"]


def looking(ranks: Ranks, box: Path) -> tuple[list[float], Finding]:
    """Losses of 20 steps, and what a look after the tenth found; another one is ended by rank 1."""
    session = engine.begin(ranks, box, SETTINGS)
    validation, beats = Validation(session), list[None]()
    points = engine.learn(session, 0, 10)
    found = validation.look(session, lambda: beats.append(None), lambda: False)
    beats.clear()
    with pytest.raises(Abandoned):
        validation.look(session, lambda: beats.append(None), lambda: ranks.rank.rank == 1 and len(beats) == 2)
    assert len(beats) == 2
    assert session.operator.training
    points += engine.learn(session, 10, 20)
    session.loader.close()
    return [loss for loss, _ in points], found


@pytest.mark.torch
def test_it_changes_nothing_in_the_training_and_chooses_the_best_checkpoint(
    box: Box, start_ranks: Start
) -> None:
    box.describe(**SETTINGS)
    data.generate(engine.config(**SETTINGS).data[0], box.path / layout.DATA)
    (losses, finding), other = together(looking, 2, box.path)
    assert other == (losses, finding)

    assert start_ranks(box, 2).wait() == [0, 0], box.log(0)
    lines = [json.loads(line) for line in (box.path / layout.METRICS).read_text().splitlines()]
    assert [line["loss"] for line in lines if "loss" in line] == losses
    found = {line["step"]: line for line in lines if "validation_nrmse" in line}
    assert list(found) == [5, 10, 15, 20]
    assert found[10]["validation_nrmse"] == finding.nrmse == finding.scores["rollout_nrmse"]
    assert found[10]["validation.persistence_nrmse"] == finding.scores["persistence_nrmse"]
    best = box.json(f"{layout.CHECKPOINTS}/best.json")
    lowest = min(found.values(), key=lambda line: line["validation_nrmse"])
    assert (best["step"], best["by"]) == (lowest["step"], "validation_nrmse")
    assert best["value"] == lowest["validation_nrmse"]
    assert (box.path / layout.CHECKPOINTS / best["path"]).is_dir()
    assert "validation after step 20: rollout nRMSE" in box.log(0)
