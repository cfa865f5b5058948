"""Weights: where a module's tensors lie."""

import pytest
import torch
from torch import nn

from vastrun.trainer.models.weights import move_buffers

pytestmark = pytest.mark.torch


def test_buffers_move_to_a_device_and_parameters_stay() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    module.register_buffer("noise", torch.ones(3), persistent=False)
    move_buffers(module, torch.device("meta"))
    assert {buffer.device.type for buffer in module.buffers()} == {"meta"}
    assert {parameter.device.type for parameter in module.parameters()} == {"cpu"}
    assert "noise" not in module.state_dict()
