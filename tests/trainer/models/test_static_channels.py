"""Channels that do not change with time: given to a model, carried along, and neither learned nor scored."""

import pytest
import torch

from vastrun.trainer.data.trajectories import Trajectories, Windows
from vastrun.trainer.job.config import ModelConfig
from vastrun.trainer.models.latent_operator import LatentOperator
from vastrun.trainer.models.operator import Domain
from vastrun.trainer.stages.objective import UnrollLoss

pytestmark = pytest.mark.torch
CONFIG = ModelConfig(name="latent", dim=16, depth=1, heads=2, patch=4)


def operator() -> LatentOperator:
    """Of three channels, the last of them static, with weights as in the midst of a training."""
    torch.manual_seed(0)
    made = LatentOperator(CONFIG, [Domain(grid=(16,), channels=3, static=1, conditions=1)])
    for parameter in (*made.decoders.parameters(), *made.core.parameters()):
        torch.nn.init.normal_(parameter, std=0.1)
    return made


def windows(force: float) -> Windows:
    stream = torch.Generator().manual_seed(1)
    fields = torch.randn(4, 3, 3, 16, generator=stream)
    fields[:, :, 2] = force
    return Windows(
        fields=fields,
        noise=torch.randn(4, 3, 16, generator=stream),
        level=torch.zeros(4),
        conditions=torch.zeros(4, 1),
    )


def test_a_prediction_has_the_static_channels_of_its_input_and_depends_on_them() -> None:
    model, batch = operator(), windows(0.7)
    predicted = model(batch.fields[:, 0], batch.conditions)
    torch.testing.assert_close(predicted[:, 2], batch.fields[:, 0, 2], rtol=0, atol=0)
    assert (predicted[:, :2] - batch.fields[:, 0, :2]).abs().min() > 0
    other = model(windows(-0.7).fields[:, 0], batch.conditions)
    assert (predicted[:, :2] - other[:, :2]).abs().max() > 1e-4


def test_noise_leaves_static_channels_alone() -> None:
    batch = windows(0.7)
    noisy = operator().scale(0).perturb(batch.fields[:, 0], batch.noise)
    torch.testing.assert_close(noisy[:, 2], batch.fields[:, 0, 2], rtol=0, atol=0)
    torch.testing.assert_close(noisy[:, :2], (batch.fields[:, 0] + batch.noise)[:, :2])


def test_the_loss_is_that_of_the_other_channels() -> None:
    model, batch = operator(), windows(0.7)
    loss = UnrollLoss(model)(batch)
    far = batch.fields.clone()
    far[:, 1:, 2] = 1e3  # targets of a static channel are never looked at
    changed = Windows(fields=far, noise=batch.noise, level=batch.level, conditions=batch.conditions)
    torch.testing.assert_close(UnrollLoss(model)(changed), loss, rtol=0, atol=0)
    loss.sum().backward()
    gradients = [parameter.grad for parameter in model.decoders.parameters()]
    assert all(gradient is not None and gradient.abs().max() > 0 for gradient in gradients)


def test_trajectories_keep_their_number_of_static_channels_on_every_device() -> None:
    whole = Trajectories(fields=torch.zeros(2, 3, 3, 16), conditions=torch.zeros(2, 1), static=1)
    assert whole.to(torch.device("cpu")).static == 1
