"""A model of the user's code is built and called once on the machine before its data are made."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.programs import described
from vastrun.contract import layout
from vastrun.contract.workload import WRONG_MODEL

pytestmark = pytest.mark.torch

SOURCE = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, *, grid, channels, conditions, width=8):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(grid[-1], grid[-1]) for _ in range(width // 4))

    def forward(self, fields, conditions):
        for layer in self.layers:
            fields = layer(fields)
        return fields


class Wide(Net):
    def forward(self, fields, conditions):
        return super().forward(fields, conditions).expand(-1, 2, -1)


class Detached(Net):
    def forward(self, fields, conditions):
        return super().forward(fields, conditions).detach()


class Mixed(Net):
    def forward(self, fields, conditions):
        return fields @ conditions


class Curious(Net):
    def forward(self, fields, conditions):
        return super().forward(fields, conditions) * (2.0 if fields.max() > 1 else 1.0)
"""


def tried(folder: Path, train: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """The step's program in a box with that job."""
    write_code(folder / layout.CODE)
    job = {
        "run_id": "calm-heron-3f1a",
        "name": "small",
        "ranks": 1,
        "gpus": 0,
        "stall_s": 60,
        "start_s": 60,
        "train": train,
    }
    (folder / layout.JOB).write_text(json.dumps(described(job)))
    environment = {**os.environ, "VASTRUN_BOX": str(folder)}
    program = [sys.executable, "-P", "-m", "vastrun.trainer.workload.own_model"]
    return subprocess.run(program, env=environment, capture_output=True, text=True, timeout=240)


def write_code(code: Path) -> None:
    code.mkdir()
    (code / "mymodel.py").write_text(SOURCE)


def model(name: str, **train: Any) -> dict[str, Any]:
    return {"model": {"name": f"mymodel:{name}"}, **train}


def test_our_models_are_not_tried_and_torch_is_not_imported(tmp_path: Path) -> None:
    done = tried(tmp_path, {})
    assert (done.returncode, done.stdout) == (0, "the job has no model of its own\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("train", "code", "says"),
    [
        (model("Net"), 0, "mymodel:Net: 8,320 parameters, 2 blocks; built and called in "),
        (model("Curious"), 0, "mymodel:Curious: 8,320 parameters"),
        (model("Net", data={"task": "mine:make"}), 0, "it is built when the data of mine:make are read"),
        (
            model("Wide"),
            1,
            "train.model.name: mymodel:Wide returned a tensor (2, 2, 64); expected the change",
        ),
        (model("Detached"), 1, "the result of mymodel:Detached does not depend on its parameters"),
        (model("Mixed"), 1, "train.model: mymodel:Mixed failed when it was called: RuntimeError: "),
        (model("Absent"), 1, "train.model.name: expected a class Absent, an nn.Module, in "),
        (model("Absent", data={"task": "mine:make"}), 1, "train.model.name: expected a class Absent"),
    ],
)
def test_a_model_is_tried_with_the_shapes_of_its_data(
    tmp_path: Path, train: dict[str, Any], code: int, says: str
) -> None:
    done = tried(tmp_path, train)
    assert done.returncode == code, done.stderr
    assert says in (done.stderr.splitlines()[-1] if code else done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("train", "code", "says"),
    [
        (model("Net"), 0, '"parameters": 8320'),
        (
            model("Wide"),
            WRONG_MODEL,
            "workload: train.model.name: mymodel:Wide returned a tensor (24, 2, 64)",
        ),
        (model("Net", optim={"name": "muon"}), 0, '"parameters": 8320'),
        (
            model("Curious"),
            1,
            "workload: train.model: no estimate without values: DataDependentOutputException",
        ),
        (model("Absent"), WRONG_MODEL, "workload: train.model.name: expected a class Absent"),
    ],
)
def test_its_workload_is_estimated_as_that_of_our_models(
    tmp_path: Path, train: dict[str, Any], code: int, says: str
) -> None:
    write_code(tmp_path / "code")
    query = {"train": train, "world_size": 2, "gpus": True, "code": str(tmp_path / "code")}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "vastrun.trainer.workload"],
        input=json.dumps(query),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == code, done.stderr
    assert says in (done.stderr.splitlines()[-1] if code else done.stdout)
