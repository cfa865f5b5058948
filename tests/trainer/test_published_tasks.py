"""Every task of flows and reactions: a finer published file is read, trained, scored, drawn and resumed."""

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.trainer.conftest import SMALL, Box, RunningRanks
from vastrun.contract import layout
from vastrun.trainer import data
from vastrun.trainer.job.data_config import DataConfig

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(600)]

READ = DataConfig(train=16, test=4, validation=4, points=16, frames=5, dt=0.04)
TASKS = {
    "reaction_diffusion": replace(READ, nus=(0.01,), rhos=(5.0, 10.0)),
    "diffusion_sorption": replace(READ, dt=50.0),
    "compressible_1d": READ,
    "compressible_2d": replace(READ, machs=(0.1, 0.5)),
    "incompressible": READ,
}


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
@pytest.mark.parametrize("task", TASKS)
def test_a_finer_file_is_read_trained_on_two_ranks_scored_drawn_and_resumed_on_one(
    task: str, strategy: str, tmp_path: Path
) -> None:
    config = replace(TASKS[task], task=task)
    options = {
        "data": [asdict(config)],
        "model": {**SMALL["model"], "patch": 4},
        "strategy": strategy,
        "evaluate_every": 10,
        "plots": True,
    }
    box = Box(tmp_path / "box", **options, steps=10)
    finer = replace(config, points=32, frames=9, dt=config.dt / 2)
    files = data.generate(finer, box.path / layout.DATA)
    assert len(files) == len(config.parameters_of(task))

    assert RunningRanks(box, 2).wait() == [0, 0], box.log(0)
    box.describe(**options, steps=20)
    assert RunningRanks(box, 1).wait() == [0], box.log(0)
    assert "resumes after step 10" in box.log(0)

    lines = map(json.loads, (box.path / layout.METRICS).read_text().splitlines())
    losses = {point["step"]: point["loss"] for point in lines if "loss" in point}
    assert list(losses) == list(range(1, 21))
    assert all(map(math.isfinite, losses.values()))
    scores = box.json(layout.FINAL)["scores"]
    assert {"rollout_nrmse", *(f"{name}_nrmse" for name in ("persistence", "linear_map", "nearest"))} <= set(
        scores
    )
    assert all(map(math.isfinite, scores.values()))
    assert f"{task}-fields.png" in {path.name for path in (box.path / layout.EVALUATION).iterdir()}
