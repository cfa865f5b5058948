"""`train.deterministic`: what it refuses, what it sets, and what a resumed training warns of."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.trainer import sessions
from tests.trainer.conftest import Box, Start, together
from vastrun.contract import layout
from vastrun.trainer import data
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.engine.determinism import changes_since, describe_run
from vastrun.trainer.engine.plan import Plan

pytestmark = pytest.mark.torch

PLAN = Plan(strategy="ddp", reason="", world_size=2, micro_batch=8, accumulation=3, precision="fp32")


def test_a_checkpoint_of_the_same_plan_and_device_is_repeated() -> None:
    saved = describe_run(PLAN, "NVIDIA H100 80GB HBM3")
    assert changes_since(saved, replace(PLAN, reason="another"), "NVIDIA H100 80GB HBM3") == []


def test_what_changes_the_last_bits_is_named() -> None:
    saved = describe_run(PLAN, "NVIDIA H100 80GB HBM3")
    assert changes_since(saved, replace(PLAN, micro_batch=4), "NVIDIA H100 80GB HBM3") == [
        "micro_batch was 8, and is 4"
    ]
    assert changes_since(saved, PLAN, "NVIDIA A100-SXM4-80GB") == [
        "the device was NVIDIA H100 80GB HBM3, and is NVIDIA A100-SXM4-80GB"
    ]
    assert "torch was None, and is" in changes_since({"plan": asdict(PLAN)}, PLAN, "cpu")[0]
    assert len(changes_since({"plan": 3}, PLAN, "cpu")) == 6


def settings_of_torch(ranks: Ranks, box: Path) -> tuple[bool, ...]:
    import torch
    import torch._dynamo.config as dynamo
    import torch._inductor.config as inductor

    sessions.begin(ranks, box, {"deterministic": True}).loader.close()
    return (
        torch.are_deterministic_algorithms_enabled(),
        not torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.backends.cudnn.deterministic,
        not torch.backends.cudnn.benchmark,
        not torch.utils.deterministic.fill_uninitialized_memory,
        inductor.deterministic,
        not dynamo.automatic_dynamic_shapes,
    )


def test_the_flag_reaches_torch_in_a_rank(tmp_path: Path) -> None:
    [found] = together(settings_of_torch, 1, sessions.prepare(tmp_path / "box"))
    assert all(found), found


def finished(start: Start, box: Box) -> str:
    """Train to the end; return the log of rank 0."""
    for task in sessions.config().data:
        data.generate(task, box.path / layout.DATA)
    assert start(box, 1).wait() == [0], box.log(0)
    return box.log(0)


@pytest.mark.slow
def test_the_log_says_what_it_means_and_where_it_cannot_be_kept(start_ranks: Start, tmp_path: Path) -> None:
    path, options = tmp_path / "box", {"steps": 4, "checkpoint_every": 2}
    log = finished(start_ranks, Box(path, **options, deterministic=True))
    assert "deterministic: a resumed run repeats an uninterrupted one bit for bit" in log
    assert "warning" not in log

    log = finished(start_ranks, Box(path, **{**options, "steps": 6}, deterministic=True, micro_batch=4))
    assert "does not repeat an uninterrupted run bit for bit: micro_batch was 8, and is 4" in log

    finished(start_ranks, Box(path, **{**options, "steps": 8}))
    log = finished(start_ranks, Box(path, **{**options, "steps": 10}, deterministic=True))
    assert "bit for bit: it was saved without train.deterministic" in log


MODELS: dict[str, dict[str, Any]] = {
    "fno": {"model": {"name": "fno", "dim": 16, "depth": 2, "modes": 8}},
    "spectral": {"model": {"name": "spectral", "dim": 16, "depth": 2, "modes": 8, "points": 16}},
    "muon, bf16": {"optim": {"name": "muon"}, "precision": "bf16"},
    "spectral loss": {"objective": {"spectral": 0.5, "conservation": 0.5}},
}


@pytest.mark.slow
@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_torch_has_deterministic_kernels_for_all_that_a_training_computes(
    options: dict[str, Any], start_ranks: Start, tmp_path: Path
) -> None:
    log = finished(start_ranks, Box(tmp_path / "box", steps=2, deterministic=True, **options))
    assert "deterministic:" in log
