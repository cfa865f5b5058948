"""What a checkpoint holds of a training that has not made a step yet."""

import pytest
import torch
from torch import nn

from vastrun.trainer.checkpoints import tensors_of

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("graphs", [False, True], ids=["without gradients", "with those of CUDA graphs"])
def test_an_optimiser_that_made_no_step_has_its_moments(graphs: bool) -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    if graphs:
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
    before = [parameter.grad for parameter in model.parameters()]

    tensors = tensors_of(model, [optimizer], None)

    assert {"optimizer.weight.exp_avg", "optimizer.bias.exp_avg_sq"} <= tensors.keys()
    assert tensors["optimizer.weight.exp_avg"] is optimizer.state[model.weight]["exp_avg"]
    assert all(p.grad is grad for p, grad in zip(model.parameters(), before, strict=True))
