"""Models of the user's code: trained, saved, continued and evaluated like ours."""

import importlib
import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.trainer import sessions
from tests.trainer.conftest import Box, Start, together
from tests.trainer.models.own_models import EXAMPLES, SPECTRAL, TRANSFORMER, box_with, own_model, prepare
from tests.trainer.sessions import Curve
from tests.waiting import eventually
from vastrun.contract import layout
from vastrun.trainer import user_code
from vastrun.trainer.checkpoints.export import export
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.errors import ConfigError
from vastrun.trainer.evaluation.model_loader import load_model
from vastrun.trainer.evaluation.report import evaluate_all

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]


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
    [
        pytest.param(TRANSFORMER, id="transformer"),
        pytest.param(SPECTRAL, id="spectral"),
        pytest.param({"name": "unets:CNextUNet", "options": {"width": 8, "depth": 2}}, id="unet"),
        NEURALOPERATOR,
    ],
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


@pytest.mark.parametrize("grid", [(32,), (16, 16)])
@pytest.mark.parametrize("name", ["UNet", "CNextUNet", "WarpUNet"])
def test_the_change_that_a_unet_predicts_moves_with_a_periodic_field(
    name: str, grid: tuple[int, ...]
) -> None:
    kind = getattr(user_code.import_module("unets", EXAMPLES), name)
    net = kind(grid=grid, channels=2, conditions=1, width=8, depth=2).double()
    nn.init.normal_(net.head.weight)
    fields, conditions = torch.randn(3, 2, *grid).double(), torch.randn(3, 1).double()
    torch.testing.assert_close(net(fields.roll(4, 2), conditions), net(fields, conditions).roll(4, 2))


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
        (2, {"ema": 0.9, "evaluate_every": 10, "data": KEPT_BACK}),
        (2, {"strategy": "fsdp2", "ema": 0.9, "activation_checkpointing": "selective"}),
        (2, {"strategy": "ddp", "micro_batch": 2}),
        (1, {"compile": "blocks", "precision": "bf16"}),
    ],
    ids=["ema", "fsdp2", "ddp", "blocks"],
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
