"""Activation checkpointing: less memory for more computation, and the same losses."""

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.trainer import sessions
from tests.trainer.conftest import together
from vastrun.contract.records import RecordError, read_as
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.job.config import ModelConfig, TrainConfig
from vastrun.trainer.workload.estimator import estimate_workload

MODES: tuple[Literal["off", "selective", "full"], ...] = ("off", "selective", "full")
MODELS = {
    "latent": ModelConfig(name="latent", dim=64),
    "fno": ModelConfig(name="fno", dim=48),
    "spectral": ModelConfig(name="spectral", dim=48),
}


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a step takes: bytes of activations at the peak, and floating-point operations."""

    nbytes: int
    flops: float


def costs(ranks: Ranks, base: TrainConfig) -> dict[str, list[Cost]]:
    """Costs of the modes, by model."""
    found: dict[str, list[Cost]] = {}
    for name, model in MODELS.items():
        configs = [replace(base, model=model, activation_checkpointing=mode) for mode in MODES]
        steps = [estimate_workload(ranks, config, "single", config.batch) for config in configs]
        found[name] = [Cost(nbytes=step.peak.activations, flops=step.flops) for step in steps]
    return found


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_selective_needs_less_memory_than_off_and_less_computation_than_full(
    precision: Literal["fp32", "bf16"],
) -> None:
    [found] = together(costs, 1, TrainConfig(batch=16, strategy="single", precision=precision))
    for name, (off, selective, full) in found.items():
        assert off.nbytes > selective.nbytes > full.nbytes, name
        assert off.flops <= selective.flops < full.flops, name
    off, selective, _ = found["latent"]
    assert selective.flops == off.flops, "a matrix product was computed again"


def losses(ranks: Ranks, box: Path, jobs: list[dict[str, Any]]) -> list[list[float]]:
    return [
        [loss for loss, _ in sessions.learn(sessions.begin(ranks, box, settings), 0, 5)] for settings in jobs
    ]


@pytest.mark.torch
def test_the_losses_are_those_of_a_training_that_keeps_all_activations(tmp_path: Path) -> None:
    box = sessions.prepare(tmp_path / "box")
    [found] = together(losses, 1, box, [{"activation_checkpointing": mode} for mode in MODES])
    for one, other in pairwise(found):
        assert one == other


@pytest.mark.torch
def test_half_precision_casts_weights_in_both_passes_of_a_block_that_is_used_twice(tmp_path: Path) -> None:
    box = sessions.prepare(tmp_path / "box")
    jobs = [{"precision": "bf16", "activation_checkpointing": mode} for mode in MODES]
    [[off, selective, full]] = together(losses, 1, box, jobs)
    assert selective == pytest.approx(off, abs=1e-2)
    assert selective == pytest.approx(full, abs=1e-2)


def test_another_word_is_refused() -> None:
    with pytest.raises(RecordError, match="activation_checkpointing: expected"):
        read_as(TrainConfig, {"activation_checkpointing": "some"})
