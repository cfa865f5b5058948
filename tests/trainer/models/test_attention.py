"""Attention: by which weights each token sees all others."""

from __future__ import annotations

import torch

from vastrun.trainer.models.attention import Attention


def test_attention_weighs_values_by_the_angle_between_queries_and_keys() -> None:
    attention = Attention(16, heads=2)
    x = torch.randn(3, 5, 16)
    q, k, v = attention.qkv(x).unflatten(-1, (3, 2, 8)).unbind(2)
    q, k = (8**0.5 * part / part.norm(dim=-1, keepdim=True) for part in (q, k))
    weights = torch.einsum("bshe,bthe->bhst", q, k).div(8**0.5).softmax(dim=-1)
    expected = attention.out(torch.einsum("bhst,bthe->bshe", weights, v).flatten(2))
    assert torch.allclose(attention(x), expected, atol=1e-5)
