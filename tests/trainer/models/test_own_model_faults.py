"""A model of the user's code that cannot be built or used is an error that names its key."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.models.own_models import own_model
from vastrun.contract.records import read_as
from vastrun.trainer.errors import ConfigError
from vastrun.trainer.job.config import TrainConfig

pytestmark = pytest.mark.torch

FAULTY = """
import torch
from torch import nn


class Base(nn.Module):
    def __init__(self, *, grid, channels, conditions, **options):
        super().__init__()
        self.linear = nn.Linear(grid[-1], grid[-1])

    def forward(self, fields, conditions):
        return self.linear(fields)


class Options(Base):
    def __init__(self, *, grid, channels, conditions, width):
        raise ValueError("width is odd")


class Batches(Base):
    def __init__(self, **options):
        super().__init__(**options)
        self.norm = nn.BatchNorm1d(1)


class Halves(Base):
    def __init__(self, **options):
        super().__init__(**options)
        self.half()


class Tied(Base):
    def __init__(self, **options):
        super().__init__(**options)
        self.other = nn.Linear(*self.linear.weight.shape)
        self.other.weight = self.linear.weight


class Lazy(Base):
    def __init__(self, **options):
        super().__init__(**options)
        self.linear = nn.LazyLinear(4)


class Constant(Base):
    def __init__(self, **options):
        super().__init__(**options)
        self.requires_grad_(False)


class Wide(Base):
    def forward(self, fields, conditions):
        return self.linear(fields).expand(-1, 2, -1)


class Nothing(Base):
    def forward(self, fields, conditions):
        self.linear(fields)


def number(**options):
    return 3
"""


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "faulty.py").write_text(FAULTY)
    (tmp_path / "broken.py").write_text("import absent_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        (
            "absent:Net",
            {},
            "train.model.name: cannot import absent: ModuleNotFoundError: No module named 'absent'",
        ),
        (
            "broken:Net",
            {},
            "cannot import broken: ModuleNotFoundError: No module named 'absent_package' (broken.py, line 1)"
            "; give the package that has it, as in setup: [pip install PACKAGE]",
        ),
        ("faulty:Net", {}, "train.model.name: expected a class Net, an nn.Module, in "),
        (
            "faulty:number",
            {},
            "expected an nn.Module from faulty:number(grid=(32,), channels=1, conditions=2), got a int",
        ),
        (
            "faulty:Options",
            {"width": 3},
            "train.model: faulty:Options(grid=(32,), channels=1, conditions=2, width=3) failed: "
            "ValueError: width is odd (faulty.py, line 17)",
        ),
        (
            "faulty:Options",
            {"depth": 3},
            "TypeError: Options.__init__() got an unexpected keyword argument 'depth'",
        ),
        (
            "faulty:Halves",
            {},
            "has the parameter linear.weight of type torch.float16; expected float32 or complex64",
        ),
        (
            "faulty:Tied",
            {},
            "has one parameter under two names, linear.weight and other.weight; expected one for",
        ),
        (
            "faulty:Lazy",
            {},
            "has the lazy parameter linear.weight; expected shapes that are known when it is",
        ),
        ("faulty:Constant", {}, "has no parameters to train; expected some, with requires_grad"),
    ],
)
def test_a_model_that_cannot_be_built_is_an_error_of_its_key(
    faulty: Path, name: str, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        own_model(faulty, {"name": name, "options": options})


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "Wide",
            "train.model.name: faulty:Wide returned a tensor (4, 2, 32); expected the change of the fields, ",
        ),
        ("Nothing", "faulty:Nothing returned None; expected the change of the fields, a tensor (4, 1, 32)"),
    ],
)
def test_another_result_than_the_change_of_the_fields_is_an_error(faulty: Path, name: str, says: str) -> None:
    model = own_model(faulty, {"name": f"faulty:{name}"})
    with pytest.raises(ConfigError, match=re.escape(says)):
        model(torch.zeros(4, 1, 32), torch.zeros(4, 2))


@pytest.mark.parametrize(
    ("name", "train", "ranks", "says"),
    [
        ("Batches", {}, 2, "has running statistics of batches (norm), which differ between ranks"),
        ("Batches", {}, 1, None),
        (
            "Base",
            {"optim": {"name": "muon"}},
            1,
            "train.optim.name: muon works on blocks, and faulty:Base has none",
        ),
        ("Base", {"compile": "blocks"}, 1, "train.compile: blocks works on blocks"),
        ("Base", {"compile": "whole"}, 1, None),
        (
            "Base",
            {"activation_checkpointing": "full"},
            1,
            "train.activation_checkpointing: full works on blocks",
        ),
    ],
)
def test_an_option_that_does_not_work_with_the_module_is_an_error(
    faulty: Path, name: str, train: dict[str, Any], ranks: int, says: str | None
) -> None:
    model = own_model(faulty, {"name": f"faulty:{name}"})
    config: TrainConfig = read_as(TrainConfig, train)
    if says is None:
        model.check_options(config, ranks)
        return
    with pytest.raises(ConfigError, match=re.escape(says)):
        model.check_options(config, ranks)
