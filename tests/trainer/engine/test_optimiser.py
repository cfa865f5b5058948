"""The learning rate of each step."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from vastrun.trainer.engine.optimiser import LearningRateSchedule, Muon, all_to_all
from vastrun.trainer.job.config import OptimConfig


def rates(steps: int, **options: object) -> list[float]:
    schedule = LearningRateSchedule(OptimConfig(lr=1.0, **options), steps)  # type: ignore[arg-type]
    return [schedule.rate(step) for step in range(steps)]


def test_a_cosine_falls_after_a_linear_warm_up() -> None:
    found = rates(100, warmup=0.1)
    assert found[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert found[10] == 1.0
    assert found[55] == pytest.approx(0.505)
    assert found[10:] == sorted(found[10:], reverse=True)
    assert 0 < found[-1] < 0.02


def test_a_training_without_warm_up_begins_at_the_full_rate() -> None:
    assert rates(1, warmup=0.0) == [1.0]


def test_a_line_falls_by_the_same_each_step() -> None:
    found = rates(10, warmup=0.0, schedule="linear")
    assert found == pytest.approx([1 - 0.099 * step for step in range(10)])


def test_steps_drop_at_fixed_distances_after_the_warm_up() -> None:
    found = rates(10, warmup=0.2, schedule="step", drop=0.5, drop_after=3)
    assert found == pytest.approx([0.5, 1, 1, 1, 1, 0.505, 0.505, 0.505, 0.2575, 0.2575])


def test_a_constant_rate_stays() -> None:
    assert rates(5, warmup=0.0, schedule="constant") == [1.0] * 5


def two_parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((24, 8), (8,))]


def train(optimizers: list[torch.optim.Optimizer], parameters: list[nn.Parameter], steps: int = 3) -> None:
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        for optimizer in optimizers:
            optimizer.step()


def muon(parameters: list[nn.Parameter]) -> Muon:
    matrix, vector = parameters
    matrices = [{"params": [matrix], "weight_decay": 0.05}]
    return Muon(matrices, [{"params": [vector]}], lr=0.1, weight_decay=0.05)


def test_each_parameter_moves_as_with_an_optimiser_of_its_own() -> None:
    ours, theirs = two_parameters(), two_parameters()
    train([muon(ours)], ours)
    matrix = torch.optim.Muon([theirs[0]], lr=0.1, weight_decay=0.05, adjust_lr_fn="match_rms_adamw")
    vector = torch.optim.AdamW([theirs[1]], lr=0.1, weight_decay=0.05)
    train([matrix, vector], theirs)
    # torch's Muon computes in bf16 on a CPU too.
    assert torch.allclose(ours[0], theirs[0], atol=5e-3)
    assert torch.equal(ours[1], theirs[1])


def test_a_restored_optimiser_goes_on_with_its_momentum() -> None:
    parameters = two_parameters()
    optimizer = muon(parameters)
    train([optimizer], parameters)
    twins = deepcopy(parameters)
    twin = muon(twins)
    twin.load_state_dict(deepcopy(optimizer.state_dict()))
    for one, its in ((optimizer, parameters), (twin, twins)):
        train([one], its)
    assert all(torch.equal(one, its) for one, its in zip(parameters, twins, strict=True))


@pytest.mark.parametrize("shape", [(8, 24), (24, 8), (8, 8)])
def test_matrices_of_any_shape_are_turned(shape: tuple[int, int]) -> None:
    parameter = nn.Parameter(torch.zeros(shape))
    other = nn.Parameter(torch.zeros(1))
    optimizer = Muon([{"params": [parameter]}], [{"params": [other]}], lr=1.0)
    parameter.grad = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    optimizer.step()
    norms = torch.linalg.svdvals(parameter.detach()) / (0.2 * max(shape) ** 0.5)
    assert norms == pytest.approx([1.0] * 8, abs=0.5)


def test_offloaded_tensors_leave_from_the_device_of_the_ranks_talk(monkeypatch: pytest.MonkeyPatch) -> None:
    devices: list[str] = []

    def record(there: torch.Tensor, values: torch.Tensor, *_: object, **__: object) -> None:
        devices.extend((there.device.type, values.device.type))

    monkeypatch.setattr(torch.distributed, "all_to_all_single", record)
    all_to_all(torch.zeros(5), [3, 2], [3, 3], None, torch.device("meta"))  # type: ignore[arg-type]
    assert devices == ["meta", "meta"]
