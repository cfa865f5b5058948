"""Strategies: one training, spread in every way, has the same weights, gradients and losses."""

from inspect import signature
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.trainer import sessions
from tests.trainer.conftest import together
from tests.trainer.sessions import Curve
from vastrun.contract import layout
from vastrun.trainer import data, models
from vastrun.trainer.engine.session_builder import domain_of
from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.strategies import STRATEGIES, without_buffer_sync


def test_every_strategy_of_the_job_file_is_in_the_registry() -> None:
    assert set(get_args(get_type_hints(TrainConfig)["strategy"])) == {"auto", *STRATEGIES}


class _Older(nn.Module):
    """DDP of a torch before 2.13."""

    def __init__(self, module: nn.Module, broadcast_buffers: bool = True) -> None:
        super().__init__()


class _Newer(nn.Module):
    """DDP since torch 2.13, which warns of the older name."""

    def __init__(
        self,
        module: nn.Module,
        broadcast_buffers: bool | None = None,
        forward_sync_buffers: bool | None = None,
    ) -> None:
        super().__init__()


def test_ddp_leaves_the_buffers_alone_by_the_name_that_the_option_has_in_its_torch() -> None:
    assert without_buffer_sync(_Older) == {"broadcast_buffers": False}
    assert without_buffer_sync(_Newer) == {"forward_sync_buffers": False}
    [option] = without_buffer_sync(DistributedDataParallel)
    assert option in signature(DistributedDataParallel).parameters


pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

Launches = tuple[tuple[int, dict[str, dict[str, Any]]], ...]

MUON = {"optim": {"name": "muon"}}
FNO = {"model": {"name": "fno", "dim": 16, "depth": 2, "modes": 8}}
SPECTRAL = {"model": {**FNO["model"], "name": "spectral", "points": 16}}
ONE: dict[str, dict[str, Any]] = {"single": {}, "single twice": {"micro_batch": 4}}
TWO: dict[str, dict[str, Any]] = {
    "ddp": {"strategy": "ddp"},
    "fsdp2": {"strategy": "fsdp2"},
    "fsdp2 muon": {"strategy": "fsdp2", **MUON},
    "fsdp2 bf16": {"strategy": "fsdp2", "precision": "bf16"},
}
MORE_ONE: dict[str, dict[str, Any]] = {
    "single muon": {"micro_batch": 4, **MUON},
    "single fno": {"micro_batch": 4, **FNO},
    "single spectral": {"micro_batch": 4, **SPECTRAL},
}
MORE_TWO: dict[str, dict[str, Any]] = {
    "ddp clone": {"strategy": "ddp"},
    "ddp muon": {"strategy": "ddp", **MUON},
    "ddp halves": {"strategy": "ddp", "micro_batch": 2},
    "ddp bf16": {"strategy": "ddp", "precision": "bf16"},
    "ddp fno": {"strategy": "ddp", **FNO},
    "fsdp2 clone": {"strategy": "fsdp2"},
    "fsdp2 halves": {"strategy": "fsdp2", "micro_batch": 2},
    "fsdp2 recomputed": {"strategy": "fsdp2", "activation_checkpointing": "full"},
    "fsdp2 selective": {"strategy": "fsdp2", "activation_checkpointing": "selective"},
    "fsdp2 selective bf16": {
        "strategy": "fsdp2",
        "activation_checkpointing": "selective",
        "precision": "bf16",
    },
    "ddp selective": {"strategy": "ddp", "activation_checkpointing": "selective"},
    "ddp fno selective": {"strategy": "ddp", "activation_checkpointing": "selective", **FNO},
    "ddp selective bf16": {"strategy": "ddp", "activation_checkpointing": "selective", "precision": "bf16"},
    "fsdp2 kept": {"strategy": "fsdp2", "fsdp2": {"reshard_after_forward": False}},
    "fsdp2 fp16": {"strategy": "fsdp2", "precision": "fp16"},
    "fsdp2 fno": {"strategy": "fsdp2", **FNO},
    "fsdp2 fno bf16": {"strategy": "fsdp2", "precision": "bf16", **FNO},
    "ddp spectral": {"strategy": "ddp", **SPECTRAL},
    "ddp spectral bf16": {"strategy": "ddp", "precision": "bf16", **SPECTRAL},
    "fsdp2 spectral": {"strategy": "fsdp2", **SPECTRAL},
    "fsdp2 spectral bf16": {"strategy": "fsdp2", "precision": "bf16", **SPECTRAL},
}
FOUR = {"fsdp2 x4": {"strategy": "fsdp2"}}
ALL = ((1, ONE | MORE_ONE), (2, TWO | MORE_TWO), (4, FOUR))

SAME_TO_THE_LAST_DIGIT = [
    ("fsdp2", "ddp"),
    ("fsdp2 kept", "ddp"),
    ("fsdp2 recomputed", "ddp"),
    ("fsdp2 selective", "ddp"),
    ("ddp selective", "ddp"),
    ("ddp fno selective", "ddp fno"),
    ("fsdp2 clone", "ddp"),
    ("ddp clone", "ddp"),
    ("single twice", "ddp"),
    ("fsdp2 halves", "ddp halves"),
    ("fsdp2 muon", "ddp muon"),
    ("single muon", "ddp muon"),
    ("fsdp2 fno", "ddp fno"),
    ("single fno", "ddp fno"),
    ("single spectral", "ddp spectral"),
    ("fsdp2 spectral", "ddp spectral"),
]
WITHIN = [
    ("single", "ddp", 1e-6),
    ("ddp halves", "ddp", 1e-6),
    ("fsdp2 x4", "ddp", 1e-6),
]
WITHIN_ITS_TYPE = [
    ("fsdp2 fp16", "ddp", 1e-3),
    ("fsdp2 bf16", "ddp", 1e-2),
    ("ddp bf16", "ddp", 1e-2),
    ("fsdp2 selective bf16", "ddp", 1e-2),
    ("ddp selective bf16", "ddp", 1e-2),
    ("fsdp2 fno bf16", "ddp fno", 1e-2),
    ("ddp spectral bf16", "ddp spectral", 1e-2),
    ("fsdp2 spectral bf16", "ddp spectral", 1e-2),
]


@pytest.mark.slow
@pytest.mark.parametrize("launches", [((1, ONE), (2, TWO)), ALL], ids=["some", "all"])
def test_a_training_is_the_same_however_it_is_spread(launches: Launches, tmp_path: Path) -> None:
    """One test, so that its launches are made once."""
    box = sessions.prepare(tmp_path / "box")
    curves: dict[str, Curve] = {}
    for ranks, jobs in launches:
        first, *others = together(sessions.curves, ranks, box, jobs, within_s=200)
        assert all(other[name].losses == first[name].losses for other in others for name in jobs)
        curves |= first
    settings = {name: job for _, jobs in launches for name, job in jobs.items()}
    first_weights_depend_on_the_seed_alone(box, curves, settings)
    gradients_of_shards_are_those_of_one_rank(curves)
    losses_and_norms_agree(curves)
    options_have_their_effect(curves)


def test_spectral_weights_are_used_in_full_precision_by_shards_of_half(tmp_path: Path) -> None:
    box = sessions.prepare(tmp_path / "box")
    types, _ = together(sessions.types_in_use, 2, box, MORE_TWO["fsdp2 fno bf16"])
    within_blocks = {name: kind for name, kind in types.items() if name.startswith("layers.")}
    full = {name for name, kind in within_blocks.items() if kind == torch.float32}
    assert full == {"layers.0.spectral.weight", "layers.1.spectral.weight"}
    assert set(within_blocks.values()) == {torch.float32, torch.bfloat16}
    assert {kind for name, kind in types.items() if name not in within_blocks} == {torch.float32}


def first_weights_depend_on_the_seed_alone(
    box: Path, curves: dict[str, Curve], settings: dict[str, dict[str, Any]]
) -> None:
    config = sessions.config()
    train = data.make_task(config.data[0], box / layout.DATA).train
    for name, curve in curves.items():
        torch.manual_seed(config.seed)
        model = sessions.config(**settings[name]).model
        twin = models.make(model, [domain_of(train)])
        twin.scale(0).set(*train.moments())
        assert curve.weights.keys() == twin.state_dict().keys(), name
        for tensor, value in twin.state_dict().items():
            # Those of a spectral model are of the data.
            is_fitted = tensor.startswith(("linear.", "lowest", "highest"))
            assert is_fitted or torch.equal(curve.weights[tensor], value), (name, tensor)


def gradients_of_shards_are_those_of_one_rank(curves: dict[str, Curve]) -> None:
    """Every block is used twice in a forward pass, once for each frame that is predicted."""
    one = curves["single"].gradients
    for name in curves.keys() & {"fsdp2", "fsdp2 kept", "fsdp2 halves", "fsdp2 x4"}:
        several = curves[name].gradients
        assert several.keys() == one.keys()
        for parameter, gradient in one.items():
            assert torch.allclose(several[parameter], gradient, rtol=1e-5, atol=1e-7), (name, parameter)


def losses_and_norms_agree(curves: dict[str, Curve]) -> None:
    for name, other in SAME_TO_THE_LAST_DIGIT:
        if {name, other} <= curves.keys():
            assert curves[name].losses == curves[other].losses, name
            assert curves[name].norms == curves[other].norms, name
    for name, other, tolerance in WITHIN + WITHIN_ITS_TYPE:
        if {name, other} <= curves.keys():
            assert curves[name].losses == pytest.approx(curves[other].losses, abs=tolerance), name


def options_have_their_effect(curves: dict[str, Curve]) -> None:
    for name, curve in curves.items():
        if "spectral" in name:  # it begins where the fitted map is
            assert max(curve.losses) < 0.1 * curves["single"].losses[0]
        else:
            assert curve.losses[-1] < 0.8 * curve.losses[0], name  # sharded parameters learn
    for name, other, _ in WITHIN_ITS_TYPE:
        if {name, other} <= curves.keys():
            assert curves[name].losses != pytest.approx(curves[other].losses, abs=1e-6), name
    assert curves["fsdp2 muon"].losses != pytest.approx(curves["fsdp2"].losses, abs=1e-3)
