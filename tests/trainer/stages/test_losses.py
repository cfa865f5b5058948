"""What the stages learn from: whose error is refined; and that distillation does not end at nothing."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vastrun.trainer import stages
from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.job.config import ModelConfig, SamplerConfig, TrainConfig
from vastrun.trainer.models.operator import Domain, Network
from vastrun.trainer.stages.losses import denoising_examples
from vastrun.trainer.stages.objective import Objective
from vastrun.trainer.stages.sampled import MAX_LEVEL

CONFIG = TrainConfig(model=ModelConfig(name="latent", dim=16, depth=1, heads=2, patch=4))
LINE = Domain(grid=(32,), channels=2, conditions=1)
UNITS = torch.tensor([10.0, 0.1])[:, None]


def made(stage: str, *, domain: Domain = LINE, sampler: SamplerConfig = SamplerConfig()) -> Objective:  # noqa: B008
    """Its networks answer something, each something else."""
    torch.manual_seed(0)
    config: Any = {"stage": stage, "sampler": sampler}
    objective = stages.make(replace(CONFIG, **config), [domain])
    for network in objective.networks:
        nn.init.normal_(network.decoders[0].content.weight, std=0.05)
        nn.init.normal_(network.core.blocks[0].modulation.weight, std=0.1)
        moments = torch.tensor([[1.0, -1.0]] * 2), UNITS.T.expand(2, -1)
        network.scale(0).set(*moments)
    return objective


def windows(frames: int = 3, seed: int = 1) -> Windows:
    stream = torch.Generator().manual_seed(seed)
    return Windows(
        fields=torch.randn(16, frames, 2, 32, generator=stream) * UNITS,
        noise=torch.randn(16, 2, 32, generator=stream),
        level=torch.randn(16, generator=stream),
        conditions=torch.randn(16, 1, generator=stream),
    )


def test_the_refiner_learns_what_the_operator_leaves_along_its_own_rollout(alone: Ranks) -> None:
    objective, batch = made("refine"), windows()
    model: Any = objective.operator
    with torch.no_grad():
        objective.initialise([[batch]], alone)
    of = denoising_examples(model, batch)
    u = batch.fields[:, 0]
    for target, clean in zip(batch.fields[:, 1:].unbind(1), of.clean.chunk(2), strict=True):
        frame = model.frame(u, batch.conditions, 0)
        u = model.operator(u, batch.conditions)
        assert torch.allclose(u + frame.unit * clean, target, atol=1e-4)
    by_channel = of.clean.square().mean(dim=(0, 2)).sqrt()
    assert torch.allclose(by_channel, torch.ones(2), atol=1e-4)


def test_a_refined_prediction_is_the_mean_of_its_draws_and_each_begins_from_noise_of_its_own() -> None:
    model: Any = made("refine", sampler=SamplerConfig(draws=3, temperature=1.0)).operator
    batch = windows()
    u = batch.fields[:, 0]
    draws = model.draws(u, batch.conditions)
    assert draws.shape == (3, *u.shape)
    assert torch.allclose(model(u, batch.conditions), draws.mean(dim=0))
    assert not torch.allclose(draws[0], draws[1])
    few = model.draws(u[:2], batch.conditions[:2])
    assert torch.allclose(few, draws[:, :2], rtol=1e-4, atol=1e-4)  # whatever else is asked at once


def test_a_steady_prior_draws_without_the_operator() -> None:
    model: Any = made("steady", domain=replace(LINE, steady=True)).operator
    batch = windows(frames=2)
    u = batch.fields[:, 0]
    before = model(u, batch.conditions)
    nn.init.normal_(model.operator.decoders[0].content.bias)
    assert torch.equal(model(u, batch.conditions), before)
    assert not torch.allclose(model(u.roll(1, 0), batch.conditions), before, rtol=1e-3)


def test_a_steady_prior_begins_with_what_the_operator_answers(alone: Ranks) -> None:
    objective = made("steady", domain=replace(LINE, steady=True), sampler=SamplerConfig(steps=1))
    model: Any = objective.operator
    u, conditions = windows(frames=2).fields[:, 0], windows().conditions
    answer = model.operator(u, conditions)

    def off() -> float:
        error: Tensor = (model(u, conditions) - answer) / UNITS
        return error.square().mean().sqrt().item()

    before = off()
    with torch.no_grad():
        objective.initialise([], alone)
    left_of_the_noise = 1.2 / MAX_LEVEL
    assert off() < left_of_the_noise < before / 1.5


class Nothing(nn.Module):
    """Answers zero to everything."""

    def __init__(self, instead_of: Network) -> None:
        super().__init__()
        self.scale = instead_of.scale

    def forward(self, noisy: Tensor, level: Tensor, **told: Any) -> Tensor:
        return 0 * noisy


@pytest.mark.slow
def test_to_answer_nothing_is_no_minimum_of_distillation(alone: Ranks) -> None:
    objective, batch = made("distill"), windows()
    model: Any = objective.operator
    objective.initialise([], alone)
    before, as_the_teacher = residual(model, batch), objective(batch).item()
    student, model.denoiser = model.denoiser, Nothing(model.denoiser)
    nothing = objective(batch).item()
    assert nothing > 10 * as_the_teacher
    model.denoiser = student
    optimizer = torch.optim.AdamW(student.parameters(), lr=3e-3)
    for _ in range(20):
        optimizer.zero_grad()
        objective(batch).sum().backward()
        optimizer.step()
        objective.update_average()
    assert objective(batch).item() < 0.9 * as_the_teacher
    assert residual(model, batch) > 0.7 * before


def residual(model: Any, batch: Windows) -> float:
    """How much of what the operator leaves is drawn."""
    u = batch.fields[:, 0]
    frame = model.frame(u, batch.conditions, 0)
    drawn: Tensor = (model(u, batch.conditions) - frame.centre) / frame.unit
    return drawn.square().mean().sqrt().item()


def test_the_average_follows_the_learner_and_nothing_else_moves(alone: Ranks) -> None:
    objective, batch = made("distill"), windows()
    model: Any = objective.operator
    objective.initialise([], alone)
    objective(batch).sum().backward()
    moved = {name.split(".")[0] for name, p in model.named_parameters() if p.grad is not None}
    assert moved == {"denoiser"}
    with torch.no_grad():
        model.denoiser.decoders[0].content.bias.add_(1.0)
    before = model.average.decoders[0].content.bias.clone()
    objective.update_average()
    step = model.average.decoders[0].content.bias - before
    assert torch.allclose(step, torch.full_like(step, 0.05))
