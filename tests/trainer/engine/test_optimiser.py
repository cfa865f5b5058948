"""The learning rate of each step."""

from __future__ import annotations

import pytest

from trainer.contract.config import OptimConfig
from trainer.engine.optimiser import Schedule


def rates(steps: int, **options: object) -> list[float]:
    schedule = Schedule(OptimConfig(lr=1.0, **options), steps)  # type: ignore[arg-type]
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
