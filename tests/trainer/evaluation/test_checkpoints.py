"""Rollouts of what is kept back, during a training; and of the test set, by a checkpoint alone."""

import hashlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer import sessions
from tests.trainer.conftest import Box, Start, ended, forking, together
from vastrun.contract import layout
from vastrun.trainer import data
from vastrun.trainer.data import advection
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.evaluation.model_loader import load_model
from vastrun.trainer.evaluation.report import evaluate_all
from vastrun.trainer.evaluation.rollouts import EvaluationStopped
from vastrun.trainer.evaluation.validation import Validation, ValidationScores
from vastrun.trainer.job.data_config import DataConfig

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
    splits, held_out = data.splits(config, tmp_path), data.validation(config, tmp_path)
    assert held_out is not None
    assert (len(splits.train), len(held_out), len(splits.test)) == (32, 8, 8)
    sets = [splits.train.read(range(32)), held_out.fields.numpy(), splits.test.read(range(8))]
    beginnings = [{tuple(np.round(first.ravel(), 5)) for first in fields[:, 0]} for fields in sets]
    assert [len(each) for each in beginnings] == [16, 4, 4]  # the same at both speeds
    assert len(set.union(*beginnings)) == 24
    nothing = replace(config, validation=0)
    assert data.validation(nothing, tmp_path) is None
    assert len(data.splits(nothing, tmp_path).train) == 40


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, start_ranks: Start) -> Box:
    """A box in which two ranks have trained, and looked every five steps."""
    box = Box(tmp_path_factory.mktemp("finished"), **SETTINGS)
    data.generate(sessions.config(**SETTINGS).data[0], box.path / layout.DATA)
    assert start_ranks(box, 2).wait() == [0, 0], box.log(0)
    return box


def points_of(box: Box) -> list[dict[str, float]]:
    return [json.loads(line) for line in (box.path / layout.METRICS).read_text().splitlines()]


def looking(
    ranks: Ranks, box: Path, finished: Path
) -> tuple[list[float], ValidationScores, dict[str, float]]:
    """Losses of 20 steps, and what a look after the tenth found; another one is ended by rank 1. Then, what
    the last checkpoint of the box that has finished scores."""
    session = sessions.begin(ranks, box, SETTINGS)
    validation, beats = Validation(session), list[None]()
    points = sessions.learn(session, 0, 10)
    found = validation.evaluate(session, lambda: beats.append(None), lambda: False)
    beats.clear()
    with pytest.raises(EvaluationStopped):
        validation.evaluate(
            session, lambda: beats.append(None), lambda: ranks.rank.rank == 1 and len(beats) == 2
        )
    assert len(beats) == 2
    assert session.operator.training
    points += sessions.learn(session, 10, 20)
    session.loader.close()
    _, loaded = load_model(ranks, finished / layout.CHECKPOINTS, "20", box / layout.DATA, box / layout.CODE)
    return [loss for loss, _ in points], found, evaluate_all(loaded, lambda: None).scores


@pytest.mark.torch
@pytest.mark.slow
def test_a_look_changes_no_training_and_a_checkpoint_scores_as_at_its_end(finished: Box, box: Box) -> None:
    box.describe(**SETTINGS)
    (box.path / layout.DATA).symlink_to(finished.path / layout.DATA)
    first, second = together(looking, 2, box.path, finished.path)
    assert first == second
    losses, finding, scores = first
    points = points_of(finished)
    assert [point["loss"] for point in points if "loss" in point] == losses
    found = {point["step"]: point for point in points if "validation_nrmse" in point}
    assert list(found) == [5, 10, 15, 20]
    assert found[10]["validation_nrmse"] == finding.nrmse == finding.scores["rollout_nrmse"]
    assert found[10]["validation.persistence_nrmse"] == finding.scores["persistence_nrmse"]
    assert "validation after step 20: rollout nRMSE" in finished.log(0)
    assert scores == finished.json(layout.FINAL)["scores"]


@pytest.mark.slow
@pytest.mark.torch
def test_the_best_checkpoint_is_that_of_the_lowest_error_on_what_is_kept_back(finished: Box) -> None:
    found = [point for point in points_of(finished) if "validation_nrmse" in point]
    lowest = min((point["validation_nrmse"], point["step"]) for point in found)
    best = finished.json(f"{layout.CHECKPOINTS}/best.json")
    assert (best["value"], best["step"], best["by"]) == (*lowest, "validation_nrmse")
    assert (finished.path / layout.CHECKPOINTS / best["path"]).is_dir()


@pytest.mark.slow
@pytest.mark.torch
def test_one_process_evaluates_what_two_have_trained(finished: Box, tmp_path: Path) -> None:
    checkpoints, made, out = (
        finished.path / layout.CHECKPOINTS,
        finished.path / layout.DATA,
        tmp_path / "out",
    )
    places = ("--checkpoints", checkpoints, "--data", made, "--out", out)
    status, told = called(tmp_path, *places, "--checkpoint", "20")
    assert status == 0, told
    assert "x better than" in told or "NO better than" in told
    assert told.endswith(f"report written to {out}\n")
    [own] = json.loads((out / "scores.json").read_text()).values()
    for name, value in finished.json(layout.FINAL)["scores"].items():
        if name.endswith("_nrmse"):
            found = own["parts"]["all"][name.removesuffix("_nrmse")]["nrmse"]
            assert found == pytest.approx(value, rel=1e-4), name
    assert "calm-heron-3f1a, step 20" in (out / "report.md").read_text()


@pytest.mark.torch
def test_what_cannot_be_evaluated_is_told_in_a_line(finished: Box, tmp_path: Path) -> None:
    places = (
        "--checkpoints",
        finished.path / layout.CHECKPOINTS,
        "--data",
        tmp_path,
        "--out",
        tmp_path / "out",
    )
    missing = tmp_path / "1D_Advection_Sols_beta0.4.hdf5"
    assert called(tmp_path, *places) == (
        1,
        f"evaluation: {missing}: no such file; `python -m vastrun.trainer.data generate` makes it\n",
    )
    status, told = called(tmp_path, *places, "--checkpoint", "19")
    assert (status, told.splitlines()[0][:38]) == (1, "evaluation: step-000019 cannot be read")


@pytest.mark.torch
def test_a_checkpoints_program_is_run_only_when_the_user_names_it(finished: Box, tmp_path: Path) -> None:
    canary, code = tmp_path / "canary", tmp_path / "code"
    code.mkdir()
    (code / "evil.py").write_text(f"open({str(canary)!r}, 'w')\n")
    checkpoints = tmp_path / "checkpoints"
    shutil.copytree(finished.path / layout.CHECKPOINTS, checkpoints)
    forge(checkpoints / "step-000020", task="evil:make")
    places = ("--checkpoints", checkpoints, "--data", tmp_path, "--code", code, "--out", tmp_path / "out")

    assert called(tmp_path, *places, "--checkpoint", "20") == (
        1,
        "evaluation: the checkpoint was trained on 'evil:make', user code: --task with its name runs it\n",
    )
    assert not canary.exists()
    called(tmp_path, *places, "--checkpoint", "20", "--task", "evil:make")
    assert canary.exists()


def forge(checkpoint: Path, *, task: str) -> None:
    """The checkpoint says that it is of another task, and its checksums hold."""
    state, manifest = checkpoint / "state.json", checkpoint / "manifest.json"
    record, listed = json.loads(state.read_text()), json.loads(manifest.read_text())
    record["config"]["data"][0]["task"] = task
    state.write_text(json.dumps(record))
    for file in listed["files"]:
        if file["path"] == state.name:
            content = state.read_bytes()
            file |= {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    manifest.write_text(json.dumps(listed))


def called(folder: Path, *arguments: object) -> tuple[int, str]:
    """Exit status and output of `python -m vastrun.trainer.evaluation`, forked from a server with torch."""
    words, log = [str(argument) for argument in arguments], folder / "evaluation.log"
    process = forking().Process(target=_call, args=(words, log))
    process.start()
    return ended(process), log.read_text()


def _call(arguments: list[str], log: Path) -> None:
    from vastrun.trainer.evaluation.__main__ import run

    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    run(arguments)
