"""Attention: what each token sees, and by which weights."""

from __future__ import annotations

import torch

from trainer.contract.config import ModelConfig
from trainer.models.attention import Attention, CrossAttention, RelativeBias, WindowAttention, blocked, joined

CONFIG = ModelConfig(dim=16, heads=2, window=4)


def seen(attention: WindowAttention, token: int) -> set[int]:
    """The tokens that the output of one depends on."""
    x = torch.randn(1, int(torch.tensor(attention.tokens).prod()), CONFIG.dim, requires_grad=True)
    attention(x)[0, token].sum().backward()
    assert x.grad is not None
    return {number for number, gradient in enumerate(x.grad[0]) if gradient.abs().max() > 0}


def test_attention_weighs_values_by_the_angle_between_queries_and_keys() -> None:
    attention = Attention(16, heads=2)
    x = torch.randn(3, 5, 16)
    q, k, v = attention.qkv(x).unflatten(-1, (3, 2, 8)).unbind(2)
    q, k = (8**0.5 * part / part.norm(dim=-1, keepdim=True) for part in (q, k))
    weights = torch.einsum("bshe,bthe->bhst", q, k).div(8**0.5).softmax(dim=-1)
    expected = attention.out(torch.einsum("bhst,bthe->bshe", weights, v).flatten(2))
    assert torch.allclose(attention(x), expected, atol=1e-5)


def test_attention_to_other_tokens_does_not_depend_on_their_order() -> None:
    attention = CrossAttention(16, heads=2)
    x, tokens = torch.randn(3, 5, 16), torch.randn(3, 7, 16)
    assert attention(x, tokens).shape == (3, 5, 16)
    assert torch.allclose(attention(x, tokens), attention(x, tokens.flip(1)), atol=1e-6)


def test_a_grid_is_the_same_when_it_was_taken_apart_and_joined() -> None:
    grid = torch.arange(2 * 4 * 6 * 3).reshape(2, 4, 6, 3)
    boxes = blocked(grid, (2, 3))
    assert boxes.shape == (2, 4, 6, 3)
    assert torch.equal(boxes[:, 1], grid[:, 0:2, 3:6].flatten(1, 2))
    assert torch.equal(joined(boxes, (4, 6), (2, 3)), grid)


def test_a_token_sees_its_window_and_in_the_next_layer_half_of_the_neighbours_around_the_ends_too() -> None:
    assert seen(WindowAttention(CONFIG, (12,), shifted=False), 5) == {4, 5, 6, 7}
    assert seen(WindowAttention(CONFIG, (12,), shifted=True), 5) == {2, 3, 4, 5}
    assert seen(WindowAttention(CONFIG, (12,), shifted=True), 0) == {10, 11, 0, 1}
    assert seen(WindowAttention(CONFIG, (8, 2), shifted=False), 15) == {8, 9, 10, 11, 12, 13, 14, 15}


def test_a_window_as_large_as_the_grid_sees_what_plain_attention_sees() -> None:
    windows = WindowAttention(CONFIG, (4, 4), shifted=False)
    x = torch.randn(3, 16, CONFIG.dim)
    assert windows(x).shape == x.shape
    assert torch.allclose(windows(x), windows.attention(x, windows.bias()), atol=1e-6)
    torch.nn.init.zeros_(windows.bias.head.weight)
    assert torch.allclose(windows(x), windows.attention(x), atol=1e-6)


def test_the_bias_follows_the_logarithm_of_the_distance_along_each_axis() -> None:
    bias = RelativeBias((4, 8), heads=2)
    assert bias().shape == (2, 32, 32)
    assert torch.allclose(bias()[:, 0, 9], bias()[:, 1, 10])
    assert bias.distances[0, 1].tolist() == [0.0, 1.0]
    assert bias.distances[31, 7].tolist() == [-2.0, 0.0]
    assert bias.distances[0, 7].tolist() == [0.0, 3.0]
