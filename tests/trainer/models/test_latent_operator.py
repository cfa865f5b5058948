"""The latent operator: its codec, its static channels, its objective and its optimiser."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from vastrun.trainer.data import advection
from vastrun.trainer.data.trajectories import Trajectories, TrajectoryTask, Windows
from vastrun.trainer.engine.optimiser import adamw
from vastrun.trainer.engine.session_builder import domain_of, space_of
from vastrun.trainer.job.config import ModelConfig, OptimConfig
from vastrun.trainer.job.data_config import DataConfig
from vastrun.trainer.models.latent_operator import (
    Attention,
    LatentOperator,
    PatchDecoder,
    PatchEncoder,
    from_patches,
    to_patches,
)
from vastrun.trainer.models.operator import Domain
from vastrun.trainer.sampling.windows import draw_indices
from vastrun.trainer.stages.objective import UnrollLoss

CONFIG = ModelConfig(name="latent", dim=32, depth=2, heads=2, patch=4)
TINY = replace(CONFIG, dim=16, depth=1)
DATA = DataConfig(betas=(0.5, 1.0), train=8, test=4, points=32, frames=6)


@pytest.fixture
def task(tmp_path: Path) -> TrajectoryTask:
    advection.generate(DATA, tmp_path)
    return advection.make(DATA, tmp_path)


@pytest.fixture
def operator(task: TrajectoryTask) -> LatentOperator:
    torch.manual_seed(0)
    operator = LatentOperator(CONFIG, [domain_of(task.train)])
    operator.scale(0).set(*task.train.moments())
    return operator


def windows_of(task: TrajectoryTask, step: int = 0, *, noise: float = 0.0) -> Windows:
    return task.batch(step, draw_indices(0, step, batch=8, noise=noise, space=space_of(task.train, 2)))


def trained(operator: LatentOperator, task: TrajectoryTask, steps: int) -> list[float]:
    model = UnrollLoss(operator)
    optimizer = adamw(model, OptimConfig())
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(windows_of(task, step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_window_is_a_piece_of_its_trajectory_turned(task: TrajectoryTask) -> None:
    chosen = draw_indices(0, 0, batch=8, noise=0.0, space=space_of(task.train, 2))
    windows = task.batch(0, chosen)
    assert windows.fields.shape == (8, 3, 1, 32)
    for row, window in enumerate(windows.fields):
        first = chosen.frames[row, 0]
        piece = task.train.fields[chosen.trajectory[row], first : first + 3]
        assert torch.equal(window, piece.roll(int(chosen.image[row]), dims=2))


def test_noise_reaches_the_first_frame_only(operator: LatentOperator, task: TrajectoryTask) -> None:
    quiet, noisy = windows_of(task), windows_of(task, noise=0.5)
    assert torch.equal(quiet.fields, noisy.fields)
    assert UnrollLoss(operator)(noisy) != UnrollLoss(operator)(quiet)


def test_the_loss_falls_and_the_state_of_the_model_holds_the_normalisation(
    operator: LatentOperator, task: TrajectoryTask
) -> None:
    losses = trained(operator, task, 30)
    assert losses[-1] < 0.8 * losses[0]
    state = operator.state_dict()
    assert torch.all(state["scales.0.mean"] == task.train.fields.mean())
    assert torch.all(state["scales.0.std"] == task.train.fields.std())


def test_vectors_are_not_decayed(operator: LatentOperator) -> None:
    decayed, free = adamw(operator, OptimConfig()).param_groups
    assert {p.ndim for p in decayed["params"]} == {2}
    assert {p.ndim for p in free["params"]} == {1}
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.01, 0.0)


def test_attention_weighs_values_by_the_angle_between_queries_and_keys() -> None:
    attention = Attention(16, heads=2)
    x = torch.randn(3, 5, 16)
    q, k, v = attention.qkv(x).unflatten(-1, (3, 2, 8)).unbind(2)
    q, k = (8**0.5 * part / part.norm(dim=-1, keepdim=True) for part in (q, k))
    weights = torch.einsum("bshe,bthe->bhst", q, k).div(8**0.5).softmax(dim=-1)
    expected = attention.out(torch.einsum("bhst,bthe->bshe", weights, v).flatten(2))
    assert torch.allclose(attention(x), expected, atol=1e-5)


def test_a_token_of_a_cube_knows_its_patch_and_no_other_and_is_decoded_to_where_it_was_cut_out() -> None:
    domain = Domain(grid=(8, 8, 12), channels=2, conditions=2)
    encoder, decoder = PatchEncoder(TINY, domain), PatchDecoder(TINY, domain)
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


def partly_static() -> LatentOperator:
    """Of three channels, the last of them static, with weights as in the midst of a training."""
    torch.manual_seed(0)
    made = LatentOperator(TINY, [Domain(grid=(16,), channels=3, static=1, conditions=1)])
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
    model, batch = partly_static(), windows(0.7)
    predicted = model(batch.fields[:, 0], batch.conditions)
    torch.testing.assert_close(predicted[:, 2], batch.fields[:, 0, 2], rtol=0, atol=0)
    assert (predicted[:, :2] - batch.fields[:, 0, :2]).abs().min() > 0
    other = model(windows(-0.7).fields[:, 0], batch.conditions)
    assert (predicted[:, :2] - other[:, :2]).abs().max() > 1e-4


def test_noise_leaves_static_channels_alone() -> None:
    batch = windows(0.7)
    noisy = partly_static().scale(0).perturb(batch.fields[:, 0], batch.noise)
    torch.testing.assert_close(noisy[:, 2], batch.fields[:, 0, 2], rtol=0, atol=0)
    torch.testing.assert_close(noisy[:, :2], (batch.fields[:, 0] + batch.noise)[:, :2])


def test_the_loss_is_that_of_the_other_channels() -> None:
    model, batch = partly_static(), windows(0.7)
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
