"""Models of the user's code: trained, saved, continued and evaluated like ours."""

from __future__ import annotations

import importlib
import json
import re
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.trainer import sessions
from tests.trainer.conftest import Box, RunningRanks, together
from tests.trainer.sessions import Curve
from tests.waiting import eventually
from vastrun.contract import layout
from vastrun.contract.config import TrainConfig
from vastrun.contract.errors import ConfigError
from vastrun.contract.records import read_as
from vastrun.trainer import user_code
from vastrun.trainer.checkpoints.export import export
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.evaluation.model_loader import load_model
from vastrun.trainer.evaluation.report import evaluate_all
from vastrun.trainer.models.operator import Domain
from vastrun.trainer.models.own_model import OwnModel

Start = Callable[[Box, int], RunningRanks]

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

EXAMPLES = Path(__file__).parents[3] / "examples" / "own_model"
TRANSFORMER: dict[str, Any] = {
    "name": "transformer:Transformer",
    "options": {"width": 16, "depth": 2, "heads": 2},
}
OTHERS = '''
import random

import numpy as np
import torch
from torch import nn


class Spectral(nn.Module):
    """A complex parameter, a frozen one, one that is never used, a buffer, numbers of other generators."""

    def __init__(self, *, grid, channels, conditions, width=8, dropout=0.0):
        super().__init__()
        self.lift = nn.Conv1d(channels + conditions, width, 1)
        self.layers = nn.ModuleList(Layer(width) for _ in range(2))
        self.drop = nn.Dropout(dropout)
        self.head = nn.Conv1d(width, channels, 1)
        self.unused = nn.Parameter(torch.full((3,), random.random()))
        self.frozen = nn.Parameter(torch.full((3,), np.random.rand()), requires_grad=False)
        self.register_buffer("ramp", torch.linspace(0, 1, grid[0]), persistent=False)

    def forward(self, fields, conditions):
        conditions = conditions[..., None].expand(-1, -1, fields.shape[-1])
        x = self.lift(torch.cat([fields, conditions], dim=1)) + self.ramp
        for layer in self.layers:
            x = self.drop(layer(x))
        return self.head(x) * self.frozen.mean()


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width, 4, dtype=torch.cfloat) / width)
        self.scale = nn.Linear(1, width)

    def forward(self, x):
        low = torch.fft.rfft(x.float())[..., :4]
        mixed = torch.einsum("bim,iom->bom", low, self.weight)
        scale = self.scale(x.mean(dim=(1, 2), keepdim=True)).transpose(1, 2)
        return x + scale * torch.fft.irfft(mixed, n=x.shape[-1])
'''
SPECTRAL: dict[str, Any] = {"name": "others:Spectral", "options": {"width": 8}}


def prepare(folder: Path) -> Path:
    """Return a box with data and the code of these models."""
    box = sessions.prepare(folder)
    shutil.copytree(EXAMPLES, box / layout.CODE)
    (box / layout.CODE / "others.py").write_text(OTHERS)
    return box


def curves(folder: Path, ranks: int, jobs: dict[str, dict[str, Any]]) -> dict[str, Curve]:
    """Return the trainings as rank 0 saw them."""
    return together(sessions.curves, ranks, prepare(folder), jobs, within_s=280)[0]


NEURALOPERATOR = pytest.param(
    {"name": "neuraloperator_fno:Net", "options": {"modes": 4, "width": 8, "depth": 2}},
    id="neuraloperator",
    marks=pytest.mark.skipif(
        find_spec("neuralop") is None, reason="neuraloperator is not installed: make frameworks has it"
    ),
)
DROPOUT = {**SPECTRAL, "options": {"width": 8, "dropout": 0.2}}


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [pytest.param(TRANSFORMER, id="transformer"), pytest.param(SPECTRAL, id="spectral"), NEURALOPERATOR],
)
def test_every_strategy_trains_the_same_model(tmp_path: Path, model: dict[str, Any]) -> None:
    alone = curves(tmp_path / "1", 1, {"single": {"model": model, "micro_batch": 4}})
    two = {
        "ddp": {"strategy": "ddp"},
        "fsdp2": {"strategy": "fsdp2"},
        "recomputed": {"strategy": "fsdp2", "activation_checkpointing": "full"},
        "muon": {"strategy": "fsdp2", "optim": {"name": "muon"}},
        "bf16": {"strategy": "fsdp2", "precision": "bf16"},
    }
    found = alone | curves(tmp_path / "2", 2, {name: {**more, "model": model} for name, more in two.items()})
    ddp = found["ddp"].losses
    for name in ("single", "fsdp2", "recomputed"):
        assert found[name].losses == pytest.approx(ddp, rel=1e-6), name
    assert ddp[-1] < 0.9 * ddp[0]
    assert found["bf16"].losses[0] == pytest.approx(ddp[0], rel=1e-2)
    # Muon steps differently from AdamW wherever a block has a matrix.
    assert (found["muon"].losses != ddp) is any(p.ndim == 2 for p in blocks_of(tmp_path, model).parameters())


def blocks_of(folder: Path, model: dict[str, Any]) -> nn.Module:
    return own_model(folder / "1" / layout.CODE, model).blocks


def own_model(code: Path, model: dict[str, Any]) -> OwnModel:
    """Return a model for a line of 32 points, as the small training has it."""
    user_code.add_to_path(code)
    config = read_as(TrainConfig, {"model": model}).model
    return OwnModel(config, [Domain(grid=(32,), conditions=2)])


ADAMW = ("step", "exp_avg", "exp_avg_sq")
KILLED: dict[str, Any] = {
    "steps": 40,
    "checkpoint_every": 10,
    "deterministic": True,
    "keep_checkpoints": 9,
    "batch": 12,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [pytest.param(TRANSFORMER, id="transformer"), pytest.param(DROPOUT, id="dropout"), NEURALOPERATOR],
)
def test_a_killed_training_ends_with_the_weights_of_an_undisturbed_one_and_is_evaluated(
    tmp_path: Path, start_ranks: Start, model: dict[str, Any]
) -> None:
    whole, killed = (box_with(tmp_path / name, model=model, **KILLED) for name in ("whole", "killed"))
    assert start_ranks(whole, 2).wait() == [0, 0], whole.log(0)
    ranks = start_ranks(killed, 2)
    eventually((killed.path / layout.CHECKPOINTS / "step-000010" / "manifest.json").exists)
    ranks.kill()
    for later in ("step-000020", "step-000030", "step-000040"):  # the ranks may have been quick
        shutil.rmtree(killed.path / layout.CHECKPOINTS / later, ignore_errors=True)
    assert start_ranks(killed, 2).wait() == [0, 0], killed.log(0)
    assert "resumes after step 10" in killed.log(0)
    assert killed.losses()[40] == whole.losses()[40]
    undisturbed, resumed = (everything(box, tmp_path / "all.pt") for box in (whole, killed))
    assert len(undisturbed) > 20
    # A resumed optimiser has a state, of zeros, for a parameter that no step uses.
    assert resumed.keys() - undisturbed.keys() <= {f"optimizer.net.unused.{key}" for key in ADAMW}
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in undisturbed.items())

    # On another number of ranks, with another strategy.
    killed.describe(model=model, **{**KILLED, "steps": 50, "strategy": "fsdp2"})
    assert start_ranks(killed, 3).wait() == [0, 0, 0], killed.log(0)
    killed.describe(model=model, **{**KILLED, "steps": 60})
    assert start_ranks(killed, 1).wait() == [0], killed.log(0)
    assert "resumes after step 50" in killed.log(0)
    scores = together(scores_of_checkpoint, 1, whole.path, model["name"])[0]
    # Another number of ranks rolls out other batches.
    assert scores == pytest.approx(whole.json(layout.FINAL)["scores"], rel=1e-4)
    assert_export_loads(whole, tmp_path / "weights.pt", model)


KEPT_BACK = {**sessions.SMALL["data"], "validation": 8}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "train"),
    [
        (2, {"ema": 0.9, "evaluate_every": 10, "data": KEPT_BACK, "probe": "on"}),
        (2, {"strategy": "fsdp2", "ema": 0.9, "probe": "on", "activation_checkpointing": "selective"}),
        (2, {"strategy": "ddp", "out_of_memory": "retry", "micro_batch": 2}),
        (1, {"compile": "blocks", "precision": "bf16"}),
    ],
    ids=["ema", "fsdp2", "retry", "blocks"],
)
def test_the_options_of_our_models_work_with_it(
    tmp_path: Path, start_ranks: Start, ranks: int, train: dict[str, Any]
) -> None:
    box = box_with(tmp_path / "box", model=TRANSFORMER, **train)
    assert start_ranks(box, ranks).wait() == [0] * ranks, box.log(0)
    lines = (box.path / layout.METRICS).read_text().splitlines()
    losses = [point["loss"] for point in map(json.loads, lines) if "loss" in point]
    assert len(losses) == 20 and losses[-1] < losses[0]
    assert box.json(layout.FINAL)["scores"]["rollout_nrmse"] > 0


def everything(box: Box, file: Path) -> dict[str, torch.Tensor]:
    """Return all tensors of the checkpoint of step 40."""
    export(box.path / layout.CHECKPOINTS, file, "40", everything=True)
    return dict(torch.load(file, weights_only=True))


def box_with(folder: Path, **train: Any) -> Box:
    return Box(prepare(folder), **train)


def scores_of_checkpoint(ranks: Ranks, box: Path, model: str) -> dict[str, float]:
    arguments = ranks, box / layout.CHECKPOINTS, "40", box / layout.DATA, box / layout.CODE
    with pytest.raises(ConfigError, match="--model with its name runs it"):
        load_model(*arguments)
    _, loaded = load_model(*arguments, user_models=[model])
    return dict(evaluate_all(loaded, lambda: None).scores)


def assert_export_loads(box: Box, file: Path, model: dict[str, Any]) -> None:
    """The exported weights are those of the user's class, complex ones too, without the trainer."""
    export(box.path / layout.CHECKPOINTS, file, "40")
    weights = torch.load(file, weights_only=True)
    user_code.add_to_path(box.path / layout.CODE)
    module, _, name = model["name"].partition(":")
    net = getattr(importlib.import_module(module), name)(
        grid=(32,), channels=1, conditions=2, **model["options"]
    )
    own = {key.removeprefix("net."): value for key, value in weights.items() if key.startswith("net.")}
    net.load_state_dict(own)
    assert {"scales.0.mean", "scales.0.std"} == {key for key in weights if not key.startswith("net.")}


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
