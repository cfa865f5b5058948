"""The model that a job names is looked for in its code before anything is rented, without torch."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vastrun.contract.config import ModelConfig, TrainConfig
from vastrun.launcher.bundle import Bundler
from vastrun.launcher.core.errors import JobValueError
from vastrun.launcher.core.job import Code, JobSpec

SOURCE = """
from torch import nn
from elsewhere import Other as Imported

if True:
    class Nested(nn.Module):
        pass


class Net(nn.Module):
    def __init__(self, *, grid, channels, conditions, width=8, depth):
        ...

    def forward(self, fields, conditions, scale=1.0):
        ...


class Free(nn.Module):
    def __init__(self, **arguments):
        ...

    def forward(self, *inputs):
        ...


class Narrow(Free):
    def __init__(self, grid, channels):
        ...


class Alone(nn.Module):
    def forward(self, fields):
        ...


def make(grid, channels, conditions, **options):
    return Net()


Alias = Free
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    (folder / "package").mkdir(parents=True)
    (folder / "mymodel.py").write_text(SOURCE)
    (folder / "package" / "models.py").write_text(SOURCE)
    (folder / "package" / "__init__.py").write_text("from package.models import *\n")
    (folder / "broken.py").write_text("import torch\nclass Net(:\n")
    (folder / "random.py").write_text(SOURCE)
    return folder


def job(code: Path, name: str, **options: Any) -> JobSpec:
    model = ModelConfig(name=name, options=options)
    return JobSpec(name="job", code=Code(path=str(code)), train=TrainConfig(model=model))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mymodel:Net", {"depth": 2}),
        ("mymodel:Net", {"depth": 2, "width": 4}),
        ("mymodel:Free", {"anything": [1]}),
        ("mymodel:Nested", {"its": "base decides"}),
        ("mymodel:Imported", {}),
        ("mymodel:Alias", {}),
        ("mymodel:make", {"anything": 1}),
        ("package.models:Free", {}),
        ("package:Free", {}),
    ],
)
def test_a_model_that_may_work_is_accepted(code: Path, name: str, options: dict[str, Any]) -> None:
    Bundler({}).check(job(code, name, **options))


@pytest.mark.parametrize(
    ("name", "options", "says", "hint"),
    [
        (
            "mymodle:Net",
            {},
            "expected the module mymodle in the job's code, and there is no ",
            "the module mymodel",
        ),
        ("package.model:Net", {}, "there is no {code}/package/model.py", "the module package.models"),
        (
            "mymodel:Nett",
            {},
            "expected a class Nett, an nn.Module, in {code}/mymodel.py",
            "train.model.name: mymodel:Net",
        ),
        ("broken:Net", {}, "train.model.name: {code}/broken.py:2: invalid syntax", ""),
        ("random:Net", {}, "random is a module of Python itself", "rename the file"),
        (
            "mymodel:Net",
            {},
            "train.model.options.depth: {code}/mymodel.py:10: expected a value",
            "{depth: ...}",
        ),
        (
            "mymodel:Net",
            {"depth": 2, "widht": 4},
            "train.model.options.widht: {code}/mymodel.py:10: expected mymodel:Net to take the argument",
            "train.model.options.width",
        ),
        ("mymodel:Narrow", {}, "{code}/mymodel.py:26: expected mymodel:Narrow to take the argument cond", ""),
        ("mymodel:Alone", {}, "expected Alone.forward to take (fields, conditions)", "docs/own-model.md"),
    ],
)
def test_a_model_that_cannot_work_is_an_error_with_its_place(
    code: Path, name: str, options: dict[str, Any], says: str, hint: str
) -> None:
    with pytest.raises(JobValueError) as raised:
        Bundler({}).check(job(code, name, **options))
    assert says.replace("{code}", str(code.resolve())) in str(raised.value)
    assert hint in raised.value.hint


def test_a_file_that_git_ignores_is_not_uploaded_and_the_error_says_how_it_is(code: Path) -> None:
    subprocess.run(["git", "init", "-q", code], check=True)
    (code / ".gitignore").write_text("mymodel.py\n")
    spec = job(code, "mymodel:Free")
    with pytest.raises(JobValueError, match=r"mymodel.py is not uploaded: git ignores it") as raised:
        Bundler({}).check(spec)
    assert raised.value.hint == "code: {include: [mymodel.py]}"
    Bundler({}).check(replace(spec, code=Code(path=str(code), include=("mymodel.py",))))
