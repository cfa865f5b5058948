"""The latent operator, its objective and its optimiser."""

from pathlib import Path

import pytest
import torch

from vastrun.trainer.data import advection
from vastrun.trainer.data.trajectories import TrajectoryTask, Windows
from vastrun.trainer.engine.optimiser import adamw
from vastrun.trainer.engine.session_builder import domain_of, space_of
from vastrun.trainer.job.config import ModelConfig, OptimConfig
from vastrun.trainer.job.data_config import DataConfig
from vastrun.trainer.models.latent_operator import Attention, LatentOperator
from vastrun.trainer.sampling.windows import draw_indices
from vastrun.trainer.stages.objective import UnrollLoss

CONFIG = ModelConfig(name="latent", dim=32, depth=2, heads=2, patch=4)
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
