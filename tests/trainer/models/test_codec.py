"""Codec: a token for each patch, and fields at any points."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from trainer.contract.config import ModelConfig
from trainer.models.codec import PatchDecoder, PatchEncoder
from trainer.models.latent_operator import LatentOperator
from trainer.models.operator import Domain, grid_points, interpolated

CONFIG = ModelConfig(dim=16, depth=1, heads=2)


def test_a_token_knows_its_patch_and_no_other() -> None:
    encoder = PatchEncoder(CONFIG, Domain(grid=(8, 16), channels=2, conditions=2))
    fields = torch.randn(1, 2, 8, 16, requires_grad=True)
    tokens = encoder(fields)
    assert tokens.shape == (1, 8, 16)
    tokens[0, 6].sum().backward()
    assert fields.grad is not None
    touched = fields.grad[0].abs() > 0
    assert touched[:, 4:8, 8:12].all()
    assert touched.sum() == 2 * 4 * 4


def test_a_patch_is_decoded_to_where_it_was_cut_out() -> None:
    decoder = PatchDecoder(CONFIG, Domain(grid=(8, 16), channels=2, conditions=2))
    torch.nn.init.normal_(decoder.content.weight)
    tokens = torch.zeros(1, 8, 16)
    tokens[0, 6] = 1
    touched = decoder(tokens)[0].abs() > 0
    assert touched[:, 4:8, 8:12].all()
    assert touched.sum() == 2 * 4 * 4


@pytest.mark.parametrize("decoder", ["patch", "point"])
@pytest.mark.parametrize(("grid", "channels"), [((32,), 1), ((8, 16), 2)])
def test_a_prediction_at_the_points_of_the_grid_is_the_prediction_on_the_grid(
    decoder: str, grid: tuple[int, ...], channels: int
) -> None:
    config = replace(CONFIG, decoder=decoder)
    operator = LatentOperator(config, [Domain(grid=grid, channels=channels, conditions=2)])
    for parameter in operator.decoders.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    operator.scale(0).set(torch.ones(2, channels), 2 * torch.ones(2, channels))
    u, conditions = torch.randn(3, channels, *grid), torch.randn(3, 2)
    prediction = operator(u, conditions)
    assert not torch.allclose(prediction, u, atol=0.1)
    at_centres = operator(u, conditions, points=grid_points(grid).flatten(0, -2))
    assert torch.allclose(at_centres, prediction.flatten(2), atol=1e-4)
    assert operator(u, conditions, points=torch.rand(7, len(grid))).shape == (3, channels, 7)


def test_between_the_points_of_the_grid_fields_are_linear_and_go_on_around_the_ends() -> None:
    fields = torch.tensor([[[0.0, 4.0, 8.0, 2.0]]])
    points = torch.tensor([[0.375], [0.25], [0.0], [1.0]])
    assert interpolated(fields, points)[0, 0].tolist() == [4.0, 2.0, 1.0, 1.0]
    plane = torch.arange(4.0)[:, None] + 10 * torch.arange(8.0)[None]
    where = torch.tensor([[0.5, 0.5], [0.25, 0.625]])
    assert interpolated(plane[None, None], where)[0, 0].tolist() == [36.5, 45.5]
