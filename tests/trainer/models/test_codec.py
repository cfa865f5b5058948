"""Codec: a token for each patch, and back."""

import torch

from vastrun.trainer.job.config import ModelConfig
from vastrun.trainer.models.latent_operator import PatchDecoder, PatchEncoder, from_patches, to_patches
from vastrun.trainer.models.operator import Domain

CONFIG = ModelConfig(name="latent", dim=16, depth=1, heads=2, patch=4)


def test_a_token_of_a_cube_knows_its_patch_and_no_other_and_is_decoded_to_where_it_was_cut_out() -> None:
    domain = Domain(grid=(8, 8, 12), channels=2, conditions=2)
    encoder, decoder = PatchEncoder(CONFIG, domain), PatchDecoder(CONFIG, domain)
    fields = torch.randn(1, 2, 8, 8, 12, requires_grad=True)
    tokens = encoder(fields)
    assert tokens.shape == (1, 12, 16)
    tokens[0, 7].sum().backward()
    assert fields.grad is not None
    torch.nn.init.normal_(decoder.content.weight)
    alone = torch.zeros(1, 12, 16)
    alone[0, 7] = 1
    for touched in (fields.grad[0].abs() > 0, decoder(alone)[0].abs() > 0):
        assert touched[:, 4:8, 0:4, 4:8].all()
        assert touched.sum() == 2 * 4**3
    assert len({tuple(row.tolist()) for row in encoder.position}) == 12


def test_a_grid_is_the_same_when_it_was_taken_apart_and_joined() -> None:
    grid = torch.arange(2 * 4 * 6 * 3).reshape(2, 4, 6, 3)
    boxes = to_patches(grid, (2, 3))
    assert boxes.shape == (2, 4, 6, 3)
    assert torch.equal(boxes[:, 1], grid[:, 0:2, 3:6].flatten(1, 2))
    assert torch.equal(from_patches(boxes, (4, 6), (2, 3)), grid)
