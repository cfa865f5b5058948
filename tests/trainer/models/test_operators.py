"""All operators: the same promises for every model, in one to three dimensions, of one channel or several."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from vastrun.trainer import models
from vastrun.trainer.job.config import MODELS, ModelConfig, TrainConfig
from vastrun.trainer.job.config_checks import faults_of
from vastrun.trainer.job.data_config import DataConfig
from vastrun.trainer.models.operator import Domain, Operator
from vastrun.trainer.models.weights import count_parameters, materialise

SMALL = ModelConfig(name="latent", dim=16, depth=1, heads=2, patch=4, modes=4)
KINDS = {
    "latent": SMALL,
    "fno": replace(SMALL, name="fno"),
    "spectral": replace(SMALL, name="spectral", points=12),
}
FIELDS = {
    "1-D": ((32,), 1),
    "1-D, channels": ((32,), 2),
    "2-D": ((16, 16), 1),
    "2-D, channels": ((16, 32), 3),
    "3-D, channels": ((8, 12, 16), 5),
}
CONDITIONS = 2

every_model = pytest.mark.parametrize("config", KINDS.values(), ids=KINDS.keys())
on_every_field = pytest.mark.parametrize(("grid", "channels"), FIELDS.values(), ids=FIELDS.keys())


def made(config: ModelConfig, grid: tuple[int, ...], channels: int) -> Operator:
    torch.manual_seed(0)
    domain = Domain(grid=grid, channels=channels, conditions=CONDITIONS, periodic=channels != 2)
    return models.make(config, [domain])


def trained(config: ModelConfig, grid: tuple[int, ...], channels: int) -> tuple[Operator, list[str]]:
    """A model after a few steps that move the field by a cell; and the parameters without a gradient."""
    operator = made(config, grid, channels)
    optimizer = torch.optim.AdamW(operator.parameters(), lr=1e-2)
    u, conditions = inputs(operator)
    for _ in range(4):
        optimizer.zero_grad()
        (operator(u, conditions) - u.roll(1, -1)).square().mean().backward()
        optimizer.step()
    idle = [name for name, p in operator.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    return operator, idle


def inputs(operator: Operator) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(1)
    [domain] = operator.domains
    u = torch.randn(3, domain.channels, *domain.grid, generator=stream)
    return u, torch.randn(3, CONDITIONS, generator=stream)


def test_every_choice_of_the_job_file_is_there() -> None:
    assert set(MODELS) == set(models.MODELS)


@every_model
@on_every_field
def test_a_fresh_model_built_without_memory_predicts_persistence(
    config: ModelConfig, grid: tuple[int, ...], channels: int
) -> None:
    with torch.device("meta"):
        operator = made(config, grid, channels)
    torch.manual_seed(0)
    materialise(operator)
    at_once = made(config, grid, channels).state_dict()
    assert all(torch.equal(value, at_once[name]) for name, value in operator.state_dict().items())
    u, conditions = inputs(operator)
    assert torch.equal(operator(u, conditions), u)


@every_model
@on_every_field
def test_every_parameter_learns_and_the_prediction_follows_the_conditions(
    config: ModelConfig, grid: tuple[int, ...], channels: int
) -> None:
    operator, idle = trained(config, grid, channels)
    assert idle == []
    u, conditions = inputs(operator)
    prediction = operator(u, conditions)
    assert prediction.shape == u.shape
    assert not torch.allclose(prediction, operator(u, conditions + 1), atol=1e-4)


@every_model
def test_each_channel_is_normalised_by_its_own_moments(config: ModelConfig) -> None:
    operator, _ = trained(config, (32,), 2)
    u, conditions = inputs(operator)
    plain = operator(u, conditions)
    mean, std = torch.tensor([3.0, -1.0]), torch.tensor([10.0, 0.1])
    operator.scale(0).set(mean.expand(2, -1), std.expand(2, -1))
    scaled = operator(u * std[:, None] + mean[:, None], conditions)
    assert torch.allclose(scaled, plain * std[:, None] + mean[:, None], rtol=1e-4, atol=1e-4)


@every_model
@on_every_field
def test_a_whole_model_moves_with_it(config: ModelConfig, grid: tuple[int, ...], channels: int) -> None:
    operator = made(config, grid, channels).to("meta")
    u, conditions = (tensor.to("meta") for tensor in inputs(operator))
    assert operator(u, conditions).device.type == "meta"


@every_model
def test_half_precision_changes_a_prediction_by_little(config: ModelConfig) -> None:
    operator, _ = trained(config, (16, 16), 1)
    u, conditions = inputs(operator)
    with torch.autocast("cpu", torch.bfloat16):
        half = operator(u, conditions)
    assert half.dtype == torch.float32
    difference = (half - operator(u, conditions)).abs().max()
    assert 0 < difference < 0.05


def test_the_sizes_of_the_parts_are_the_size_of_the_model() -> None:
    operator = made(KINDS["latent"], (32,), 1)
    parts = {name: count_parameters(part) for name, part in operator.named_children()}
    assert sum(parts.values()) == count_parameters(operator)
    assert {"encoders", "core", "decoders"} < parts.keys()


@pytest.mark.parametrize(
    ("model", "key"),
    [
        ({"patch": 5}, "model.patch"),
        ({"heads": 3}, "model.heads"),
        ({"modes": 8}, "model.modes"),
        ({"name": "fno", "patch": 2}, "model.patch"),
        ({"name": "fno", "heads": 8}, "model.heads"),
        ({"patch": 6}, None),
        ({"name": "fno", "modes": 48}, None),
        ({"name": "fno", "modes": 49}, "model.modes"),
        ({"name": "spectral"}, None),
        ({"name": "spectral", "points": 96, "modes": 48}, None),
        ({"name": "spectral", "points": 200, "modes": 48}, None),
        ({"name": "spectral", "points": 200, "modes": 49}, "model.modes"),
        ({"name": "spectral", "points": 32, "modes": 17}, "model.modes"),
        ({"name": "spectral", "patch": 2}, "model.patch"),
        ({"name": "fno", "points": 64}, "model.points"),
        ({"points": 64}, "model.points"),
    ],
)
def test_what_cannot_be_built_is_a_fault_of_its_key_and_all_else_can_be(
    model: dict[str, object], key: str | None
) -> None:
    config = TrainConfig(
        data=(DataConfig(points=96),), model=replace(ModelConfig(name="latent", dim=16, depth=1), **model)
    )
    assert [fault for fault, _ in faults_of(config, 1)] == [key] * (key is not None)
    if key is None:
        operator = made(config.model, (96,), 1)
        u, conditions = inputs(operator)
        assert operator(u, conditions).shape == u.shape
