"""The objective: each term is zero for what is right, sees one kind of error, and teaches all parts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainer import sessions
from tests.trainer.conftest import together
from vastrun.contract import layout
from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.distributed.rank import Heartbeat
from vastrun.trainer.engine.step import train_step
from vastrun.trainer.job.config import ModelConfig, ObjectiveConfig
from vastrun.trainer.models.latent_operator import LatentOperator
from vastrun.trainer.models.operator import Domain, grid_points
from vastrun.trainer.stages import objective
from vastrun.trainer.telemetry.figures import training_flops

ALL = ObjectiveConfig(spectral=0.5, conservation=2.0)
GRIDS = [(32,), (16, 32), (8, 12, 16)]

on_every_grid = pytest.mark.parametrize("grid", GRIDS)
every_term = pytest.mark.parametrize("term", objective.TERMS.values(), ids=objective.TERMS.keys())


def fields(grid: tuple[int, ...], channels: int = 2) -> Tensor:
    return torch.randn(3, channels, *grid, generator=torch.Generator().manual_seed(0))


def unit(grid: tuple[int, ...], *sizes: float) -> Tensor:
    return torch.tensor(sizes).reshape(-1, *(1,) * len(grid))


def operator_on(grid: tuple[int, ...], *, steady: bool = False) -> LatentOperator:
    """Its decoder is not zero, as in the midst of a training."""
    torch.manual_seed(0)
    config = ModelConfig(name="latent", dim=16, depth=1, heads=2, patch=4)
    operator = LatentOperator(config, [Domain(grid=grid, channels=2, conditions=2, steady=steady)])
    for parameter in (*operator.decoders.parameters(), *operator.core.parameters()):
        torch.nn.init.normal_(parameter, std=0.1)
    return operator


def windows_on(grid: tuple[int, ...]) -> Windows:
    stream = torch.Generator().manual_seed(1)
    return Windows(
        fields=torch.randn(3, 3, 2, *grid, generator=stream),
        noise=torch.zeros(3, 2, *grid),
        level=torch.zeros(3),
        conditions=torch.randn(3, 2, generator=stream),
    )


def test_every_weight_of_the_job_file_has_its_term() -> None:
    assert set(objective.TERMS) == {"relative", *vars(ObjectiveConfig())}
    assert set(objective.TERMS) > objective.TIME_DEPENDENT


@every_term
@on_every_grid
def test_a_term_is_zero_for_what_is_right_grows_with_the_error_and_knows_no_units(
    term: object, grid: tuple[int, ...]
) -> None:
    target, error, units = fields(grid), fields(grid) + 0.3, unit(grid, 1.0, 1.0)
    assert torch.equal(term(target, target, units), torch.zeros(3))
    small, large = (term(target + size * error, target, units) for size in (0.1, 0.2))
    assert small.shape == (3,)
    assert (small > 0).all()
    assert (small < large).all()
    scaled = unit(grid, 10.0, 0.01)
    again = term((target + 0.1 * error) * scaled, target * scaled, scaled)
    assert torch.allclose(again, small, rtol=1e-3)


@on_every_grid
def test_the_spectral_error_is_blind_to_where_things_are_and_to_their_mean(grid: tuple[int, ...]) -> None:
    target, units = fields(grid), unit(grid, 1.0, 1.0)
    moved = target.roll(5, -1)
    assert objective.spectral_error(moved, target, units).max() < 1e-5
    assert objective.relative_error(moved, target, units).min() > 0.5
    assert objective.spectral_error(target + 1, target, units).max() < 1e-5
    assert objective.conservation_error(target + 1, target, units).min() > 0.5


@on_every_grid
def test_conservation_sees_only_the_mean_and_is_at_most_the_relative_error(grid: tuple[int, ...]) -> None:
    target, units = fields(grid), unit(grid, 2.0, 1.0)
    assert objective.conservation_error(target.flip(-1), target, units).max() < 1e-6
    wrong = target + 0.2 * fields(grid).roll(1, -1) - 0.1
    relative, conserved = (
        objective.relative_error(wrong, target, units),
        objective.conservation_error(wrong, target, units),
    )
    assert (conserved > 0).all()
    assert (conserved <= relative).all()
    off = objective.relative_error(target + 1, target, units)
    assert torch.allclose(objective.conservation_error(target + 1, target, units), off)


@pytest.mark.parametrize("grid", [(16, 16), (8, 8, 8)])
def test_no_axis_is_special_to_the_spectral_error(grid: tuple[int, ...]) -> None:
    target, units = fields(grid), unit(grid, 1.0, 1.0)
    wrong = target + 0.3 * fields(grid).roll(1, -1).flip(0)
    turned = objective.spectral_error(wrong.transpose(2, -1), target.transpose(2, -1), units)
    assert torch.allclose(objective.spectral_error(wrong, target, units), turned, rtol=1e-4)


def test_each_octave_of_wave_numbers_counts_by_itself_and_one_of_nothing_by_the_whole() -> None:
    x = grid_points((64,))[..., 0]
    waves = {number: (2 * torch.pi * number * x).sin()[None, None] for number in (1, 2, 5, 16)}
    units = unit((64,), 1.0)
    target = 8 * waves[1] + 4 * waves[2] + 2 * waves[16]
    errors = {
        number: objective.spectral_error(target + size * waves[number], target, units).item()
        for number, size in ((1, 4.0), (2, 2.0), (16, 1.0))
    }
    # Wave numbers of 64 points lie in six octaves; half of an octave is wrong in each case.
    assert errors == pytest.approx(dict.fromkeys(errors, 0.5 / 6), rel=1e-4)
    silent = objective.spectral_error(target + 0.1 * waves[5], target, units).item()
    assert silent == pytest.approx(0.1 / (1e-2 * (64 + 16 + 4)) ** 0.5 / 6, rel=1e-3)
    # What is uniform but for a little has little to be wrong in.
    assert objective.spectral_error(100 + 2 * target, 100 + target, units).item() < 0.2


@pytest.mark.parametrize("name", objective.TERMS)
def test_each_term_alone_teaches_encoder_core_and_decoder(name: str) -> None:
    for grid in GRIDS:
        operator, windows = operator_on(grid), windows_on(grid)
        prediction = operator(windows.fields[:, 0], windows.conditions)
        objective.TERMS[name](prediction, windows.fields[:, 1], unit(grid, 1.0, 1.0)).sum().backward()
        for part in (operator.encoders, operator.condition_encoders, operator.core, operator.decoders):
            gradients = [p.grad.abs().max().item() for p in part.parameters() if p.grad is not None]
            assert max(gradients) > 1e-5, part


@on_every_grid
def test_the_loss_is_the_sum_of_its_weighted_terms_and_tells_them(grid: tuple[int, ...]) -> None:
    operator, windows = operator_on(grid), windows_on(grid)
    loss, *terms = objective.UnrollLoss(operator, ALL)(windows).tolist()
    assert objective.term_names(ALL) == ("loss_relative", "loss_spectral", "loss_conservation")
    assert loss == pytest.approx(terms[0] + 0.5 * terms[1] + 2.0 * terms[2])
    assert objective.UnrollLoss(operator)(windows).tolist() == [pytest.approx(terms[0])]
    assert objective.term_names(ObjectiveConfig()) == ()


@on_every_grid
def test_in_half_precision_the_spectrum_is_that_of_full_precision(grid: tuple[int, ...]) -> None:
    target, units = fields(grid), unit(grid, 1.0, 1.0)
    wrong = (target + 0.01 * fields(grid).roll(1, -1)).bfloat16()
    expected = objective.spectral_error(wrong.float(), target, units)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(objective.spectral_error(wrong, target, units), expected)


def test_the_operations_of_a_term_are_counted() -> None:
    windows = windows_on((32,)).map(lambda tensor: tensor.to("meta"))
    plain, spectral = (
        training_flops(objective.UnrollLoss(operator_on((32,)).to("meta"), config), windows)
        for config in (ObjectiveConfig(), ObjectiveConfig(spectral=1.0))
    )
    assert plain < spectral < 1.2 * plain


def test_a_steady_problem_has_nothing_to_keep() -> None:
    windows = replace(windows_on((32,)), fields=windows_on((32,)).fields[:, :2])
    _, _, _, steady = objective.UnrollLoss(operator_on((32,), steady=True), ALL)(windows).tolist()
    _, _, _, changing = objective.UnrollLoss(operator_on((32,)), ALL)(windows).tolist()
    assert steady == 0.0
    assert changing > 0.0


@pytest.mark.torch
@pytest.mark.slow
def test_ranks_that_share_the_work_have_the_same_terms_as_one(tmp_path: Path) -> None:
    settings = {"objective": {"spectral": 0.2, "conservation": 0.5}}
    box = sessions.prepare(tmp_path / "box")
    alone = together(told, 1, box, settings, within_s=120)[0]
    spread = {**settings, "strategy": "fsdp2", "micro_batch": 2}
    first, second = together(told, 2, box, spread, within_s=120)
    assert first == second
    assert [len(step) for step in alone] == [5] * 3
    for ours, theirs in zip(alone, first, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4)


def told(ranks: Ranks, box: Path, settings: dict[str, Any]) -> list[list[float]]:
    """Loss, terms and norm of the gradient, of the first steps."""
    session = sessions.begin(ranks, box, settings)
    heart = Heartbeat(box / layout.HEARTBEATS / f"rank-{ranks.rank.rank}")
    steps = [train_step(session, step, heart)[1] for step in range(3)]
    session.loader.close()
    return [ranks.mean_of(*step) for step in steps]
